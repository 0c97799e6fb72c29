package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile   = 1 << 20  // bytes of a configuration
	maxSecret = 64 << 10 // bytes of a secret's file
)

// loader is one reading of a configuration.
type loader struct {
	file     string
	config   Config
	at       map[string]place // of every key that was given
	bad      map[string]bool  // keys with a mistake
	short    map[string]bool  // keys that a shorthand gave
	mistakes []Mistake
}

// Load reads the file, "" for none, and the environment. The error is Mistakes, all
// of them, unless the file cannot be read.
func Load(path string) (*Config, error) {
	if path == "" {
		return load("", nil, os.Environ())
	}
	f, err := os.Open(path) // #nosec G304 -- the operator names it
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: read: %w", err)
	}
	return load(path, data, os.Environ())
}

func load(file string, data []byte, environ []string) (*Config, error) {
	l := &loader{file: file, at: map[string]place{}, bad: map[string]bool{}, short: map[string]bool{}}
	if !l.yaml(data) {
		return nil, l.err() // nothing can be said of the rest
	}
	l.environment(environ)
	l.secrets(reflect.ValueOf(&l.config).Elem(), "")
	l.defaults(environ)
	l.check()
	if err := l.err(); err != nil {
		return nil, err
	}
	return &l.config, nil
}

// has tells whether a key was given.
func (l *loader) has(key string) bool {
	_, ok := l.at[key]
	return ok
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// yaml decodes the file. It is false if the file is no YAML.
func (l *loader) yaml(data []byte) bool {
	if len(data) > maxFile {
		l.wrong("", "is larger than 1 MiB")
		return false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil {
		l.syntax(err)
		return false
	}
	l.decode(doc.Content[0], reflect.ValueOf(&l.config).Elem(), "")
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		l.syntax(err)
	default:
		l.at[""] = place{line: second.Line, column: second.Column}
		l.wrong("", "a second document; a configuration is one")
	}
	delete(l.at, "")
	return !l.bad[""]
}

// parserProblem matches what the reader's parser says, as against its scanner. It
// counts lines from 0 there, from 1 in the scanner, and leaves a first line out.
var parserProblem = regexp.MustCompile(`^did not find expected (node content|key|'|<)|^found (undefined tag|duplicate %|incompatible)`)

func (l *loader) syntax(err error) {
	p, what := place{line: 1, column: 1}, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		p.line, _ = strconv.Atoi(m[1])
		if what = m[2]; parserProblem.MatchString(what) {
			p.line++
		}
	}
	l.at[""] = p
	l.wrong("", "%s", what)
	delete(l.at, "")
}

var secretType = reflect.TypeFor[Secret]()

// secrets reads the files that *_file keys name. A path is relative to the
// configuration's own folder. A variable that gives the secret itself wins over a file
// named in the configuration.
func (l *loader) secrets(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Map:
		for _, k := range sortedKeys(v.Interface()) {
			member := reflect.New(v.Type().Elem()).Elem()
			member.Set(v.MapIndex(reflect.ValueOf(k)))
			l.secrets(member, join(path, k))
			v.SetMapIndex(reflect.ValueOf(k), member)
		}
	case reflect.Slice:
		for i := range v.Len() {
			l.secrets(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			at := join(path, f.key)
			if v.Field(f.index).Type() != secretType {
				l.secrets(v.Field(f.index), at)
				continue
			}
			l.secret(v.Field(f.index), v.FieldByName(v.Type().Field(f.index).Name+"File"), at)
		}
	}
}

func (l *loader) secret(v, file reflect.Value, at string) {
	if file.String() == "" || l.bad[at+"_file"] {
		return
	}
	if here, given := l.at[at]; given {
		fileEnv := l.at[at+"_file"].env != ""
		if (here.env != "") == fileEnv {
			l.wrong(at, "is given together with %s_file", at[strings.LastIndexByte(at, '.')+1:])
			return
		}
		if !fileEnv {
			return
		}
	}
	name := file.String()
	if !filepath.IsAbs(name) && l.file != "" && l.at[at+"_file"].env == "" {
		name = filepath.Join(filepath.Dir(l.file), name)
	}
	text, err := readSecret(name)
	if err != nil {
		l.wrong(at+"_file", "%v", err)
		return
	}
	l.at[at] = l.at[at+"_file"]
	v.SetString(text)
}

func readSecret(name string) (string, error) {
	f, err := os.Open(name) // #nosec G304 -- the operator names it
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSecret {
		return "", errors.New("holds more than 64 KiB")
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" {
		return "", errors.New("is an empty file")
	}
	return text, nil
}

// sortedKeys are the keys of a map of names.
func sortedKeys(m any) []string {
	if vars, ok := m.(map[string]string); ok {
		return slices.Sorted(maps.Keys(vars))
	}
	var out []string
	for _, k := range reflect.ValueOf(m).MapKeys() {
		out = append(out, k.String())
	}
	slices.Sort(out)
	return out
}
