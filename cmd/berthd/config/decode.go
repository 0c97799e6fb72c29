package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// namePattern is what a store or a collection may be called. A collection's name
// becomes part of keys; both become part of a variable's name.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

const nameRule = "a name has 1 to 63 of a-z, 0-9, _ and -, and begins with a letter"

// field is a struct's field by its key.
type field struct {
	key   string
	index int
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		out = append(out, field{key, i})
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// decode sets v from the node, and notes where each key stands.
func (l *loader) decode(n *yaml.Node, v reflect.Value, path string) {
	l.at[path] = place{line: n.Line, column: n.Column}
	if n.Kind == yaml.AliasNode {
		l.wrong(path, "anchors and aliases are not taken; write it out")
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		delete(l.at, path) // as if it was not there, but for a map's member
		return
	}
	if n.Kind != yaml.ScalarNode && isScalar(v.Type()) {
		l.wrong(path, "must be a single value")
		return
	}
	switch {
	case isScalar(v.Type()):
		l.scalar(n, v, path)
	case v.Kind() == reflect.Slice:
		l.list(n, v, path)
	case n.Kind != yaml.MappingNode:
		l.wrong(path, "must be a mapping of keys to values")
	case v.Kind() == reflect.Map:
		l.entries(n, v, path)
	default:
		l.fields(n, v, path)
	}
}

func (l *loader) fields(n *yaml.Node, v reflect.Value, path string) {
	known := fieldsOf(v.Type())
	l.pairs(n, path, func(key string, keyNode, value *yaml.Node) {
		at := join(path, key)
		i := slices.IndexFunc(known, func(f field) bool { return f.key == key })
		if i < 0 {
			l.at[at] = place{line: keyNode.Line, column: keyNode.Column}
			names := make([]string, len(known))
			for i, f := range known {
				names[i] = f.key
			}
			l.wrong(at, "is not a key%s", like(key, names))
			return
		}
		l.decode(value, v.Field(known[i].index), at)
	})
}

func (l *loader) entries(n *yaml.Node, v reflect.Value, path string) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	l.pairs(n, path, func(key string, keyNode, value *yaml.Node) {
		at := join(path, key)
		l.at[at] = place{line: keyNode.Line, column: keyNode.Column}
		if !namePattern.MatchString(key) {
			l.wrong(at, "%s", nameRule)
			return
		}
		member := reflect.New(v.Type().Elem()).Elem()
		l.decode(value, member, at)
		l.at[at] = place{line: keyNode.Line, column: keyNode.Column}
		v.SetMapIndex(reflect.ValueOf(key), member)
	})
}

// pairs calls f for each key, once.
func (l *loader) pairs(n *yaml.Node, path string, f func(key string, keyNode, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" {
			at := fmt.Sprintf("%s[%d]", path, i/2)
			l.at[at] = place{line: k.Line, column: k.Column}
			l.wrong(at, "a key must be a word")
			continue
		}
		if line, twice := seen[k.Value]; twice {
			at := join(path, k.Value)
			l.at[at] = place{line: k.Line, column: k.Column}
			l.bad[at] = false
			l.wrong(at, "is given twice, first on line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		f(k.Value, k, value)
	}
}

func (l *loader) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		l.wrong(path, "must be a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		member := reflect.New(v.Type().Elem()).Elem()
		at := fmt.Sprintf("%s[%d]", path, i)
		l.decode(item, member, at)
		if _, given := l.at[at]; !given {
			l.at[at] = place{line: item.Line, column: item.Column}
			l.wrong(at, "is empty")
			continue
		}
		out = reflect.Append(out, member)
	}
	v.Set(out)
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// isScalar tells whether one word gives a value of the type.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice:
		return false
	}
	return true
}

func (l *loader) scalar(n *yaml.Node, v reflect.Value, path string) {
	if v.Kind() == reflect.String && n.Tag != "!!str" {
		// 0123 would be read as 83.
		l.wrong(path, "is not text to YAML; put it in quotes")
		return
	}
	if err := set(v, n.Value); err != nil {
		l.wrong(path, "%v", err)
	}
}

// set gives v the value that a word stands for. Errors continue "key: ". They do not
// repeat the word: it may be a secret in the wrong place.
func set(v reflect.Value, word string) error {
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		if err := set(p.Elem(), word); err != nil {
			return err
		}
		v.Set(p)
		return nil
	}
	if v.Addr().Type().Implements(textType) {
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(word))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(word)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(word))
		if err != nil {
			return fmt.Errorf("is neither true nor false")
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return fmt.Errorf("is not a whole number")
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return fmt.Errorf("is not a number")
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("cannot be set to a word")
	}
	return nil
}
