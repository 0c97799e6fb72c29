package config

import (
	"reflect"
	"slices"
	"strings"
)

// shorthands are the names that the local cloud writes. They fill what neither the
// file nor a long name gives, and never override: a shell that has read .dev/env must
// not bend another configuration. Those of stores make the store main, if there is no
// store at all.
var shorthands = []struct{ env, key string }{
	{"BERTH_JWT_SECRET", "auth.hs256_secret"},
	{"BERTH_SQS_QUEUE_URL", "events.queue_url"},
	{"BERTH_SQS_ENDPOINT", "events.endpoint"},
	{"BERTH_S3_ENDPOINT", "stores.main.endpoint"},
	{"BERTH_S3_BUCKET", "stores.main.bucket"},
}

const envPrefix = "BERTH_"

// EnvName is the variable of a key's path.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// environment lays BERTH_* over what the file gave.
func (l *loader) environment(environ []string) {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, envPrefix) && value != "" {
			vars[name] = value
		}
	}
	root := reflect.ValueOf(&l.config).Elem()
	for _, name := range sortedKeys(vars) {
		known, section := l.variable(root, "", strings.TrimPrefix(name, envPrefix), name, vars[name])
		if !known && section {
			l.at[name] = place{env: name}
			l.wrong(name, "is no key's variable")
		}
	}
	noStores := len(l.config.Stores) == 0
	for _, s := range shorthands {
		value, given := vars[s.env]
		if _, set := l.at[s.key]; set || !given || strings.HasPrefix(s.key, "stores.") && !noStores {
			continue
		}
		if s.key == "auth.hs256_secret" && (l.has("auth.hs256_secret_file") || l.has("auth.jwks_url")) || s.key == "events.endpoint" && !l.short["events.queue_url"] {
			continue
		}
		l.short[s.key] = true
		l.variable(root, "", strings.TrimPrefix(EnvName(s.key), envPrefix), s.env, value)
	}
}

// variable finds the key that a variable's rest names below v and sets it. section
// tells that the rest belongs to a section of ours, so that not finding it is a mistake.
func (l *loader) variable(v reflect.Value, path, rest, name, value string) (known, section bool) {
	for _, f := range fieldsOf(v.Type()) {
		upper, at, child := strings.ToUpper(f.key), join(path, f.key), v.Field(f.index)
		below, deeper := strings.CutPrefix(rest, upper+"_")
		switch {
		case rest == upper && (isScalar(child.Type()) || isWords(child.Type())):
			l.at[at], l.bad[at] = place{env: name}, false
			l.setVariable(child, at, value)
			return true, true
		case deeper && child.Kind() == reflect.Struct:
			section = true
			if known, _ := l.variable(child, at, below, name, value); known {
				return true, true
			}
		case deeper && child.Kind() == reflect.Map:
			return l.member(child, at, below, name, value), true
		}
	}
	return false, section
}

func isWords(t reflect.Type) bool { return t.Kind() == reflect.Slice && isScalar(t.Elem()) }

func (l *loader) setVariable(v reflect.Value, path, value string) {
	if !isWords(v.Type()) {
		if err := set(v, value); err != nil {
			l.wrong(path, "%v", err)
		}
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, 4)
	for word := range strings.SplitSeq(value, ",") {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := set(item, strings.TrimSpace(word)); err != nil {
			l.wrong(path, "%v", err)
			return
		}
		out = reflect.Append(out, item)
	}
	v.Set(out)
}

// member sets a key of a store or collection: of one that the file names, the longest
// name first; else of a new one, whose name is what stands before the longest key.
func (l *loader) member(m reflect.Value, path, rest, name, value string) bool {
	try := func(member, below string) bool {
		v := reflect.New(m.Type().Elem()).Elem()
		if old := m.MapIndex(reflect.ValueOf(member)); old.IsValid() {
			v.Set(old)
		}
		if known, _ := l.variable(v, join(path, member), below, name, value); !known {
			return false
		}
		if m.IsNil() {
			m.Set(reflect.MakeMap(m.Type()))
		}
		m.SetMapIndex(reflect.ValueOf(member), v)
		return true
	}
	var names []string
	for _, k := range m.MapKeys() {
		names = append(names, k.String())
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, n := range names {
		if below, ok := strings.CutPrefix(rest, strings.TrimPrefix(EnvName(n), envPrefix)+"_"); ok && try(n, below) {
			return true
		}
	}
	for i := range len(rest) {
		if n := strings.ToLower(rest[:i]); rest[i] == '_' && namePattern.MatchString(n) && try(n, rest[i+1:]) {
			at := join(path, n)
			if _, placed := l.at[at]; !placed {
				l.at[at] = place{env: name}
			}
			return true
		}
	}
	return false
}
