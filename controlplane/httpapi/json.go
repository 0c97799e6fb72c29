package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/models"
)

// maxDepth bounds the nesting of a body.
const maxDepth = 32

// maxNumber bounds a number's digits, and maxExponent its exponent: PostgreSQL's
// jsonb refuses what lies far outside.
const (
	maxNumber   = 64
	maxExponent = 308
)

// shape is what a JSON value must look like. encoding/json alone takes names in any
// case, takes the last of two, and takes null for zero; a size of null is no size.
type shape struct {
	kind     shapeKind
	nullable bool // null is as if absent
	fields   map[string]*shape
	elem     *shape
}

type shapeKind int

const (
	anyValue shapeKind = iota
	objectValue
	arrayValue
	stringValue
	integerValue
	booleanValue
)

func (k shapeKind) String() string {
	return [...]string{"a value", "an object", "a list", "a string", "a whole number", "true or false"}[k]
}

var anyShape = &shape{kind: anyValue, nullable: true}

// shapeOf reads the shape off a struct of the wire.
func shapeOf[T any]() *shape { return shapeOfType(reflect.TypeFor[T]()) }

func shapeOfType(t reflect.Type) *shape {
	if t == reflect.TypeFor[json.RawMessage]() {
		return anyShape
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := *shapeOfType(t.Elem())
		s.nullable = true
		return &s
	case reflect.Slice:
		return &shape{kind: arrayValue, nullable: true, elem: shapeOfType(t.Elem())}
	case reflect.String:
		return &shape{kind: stringValue}
	case reflect.Int, reflect.Int64:
		return &shape{kind: integerValue}
	case reflect.Bool:
		return &shape{kind: booleanValue}
	case reflect.Struct:
		s := &shape{kind: objectValue, fields: map[string]*shape{}}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			s.fields[name] = shapeOfType(f.Type)
		}
		return s
	}
	panic("httpapi: no shape for " + t.String())
}

// checkJSON tells whether b is one JSON value of the shape, and of nothing that we
// could not keep: no name twice, no NUL, no half surrogate pair, no number out of
// all proportion, no nesting beyond maxDepth. The error names the field.
func checkJSON(b []byte, s *shape) error {
	_, err := checkFields(b, s)
	return err
}

// checkFields is checkJSON that also lists the members of the outermost object,
// those that are null excepted.
func checkFields(b []byte, s *shape) ([]string, error) {
	if !utf8.Valid(b) {
		return nil, models.Errorf(models.CodeInvalidRequest, "the body is not UTF-8")
	}
	if !json.Valid(b) {
		return nil, models.Errorf(models.CodeInvalidRequest, "the body is not one JSON value")
	}
	c := jsonChecker{b: b}
	if err := c.value(s); err != nil {
		return nil, err
	}
	return c.present, nil
}

// jsonChecker walks over bytes that are known to be valid JSON. It allocates next to
// nothing: a body may name 10,000 parts.
type jsonChecker struct {
	b       []byte
	i       int
	present []string
	at      [maxDepth + 1]place // where the value stands, for messages
	depth   int                 // of at
}

// place is a member of an object, or an entry of a list if name is nil.
type place struct {
	name []byte
	n    int
}

// field is the path to the value, such as parts[3].checksum; long names are cut.
func (c *jsonChecker) field() string {
	var b strings.Builder
	for i, p := range c.at[:c.depth] {
		if p.name == nil {
			fmt.Fprintf(&b, "[%d]", p.n)
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.Write(p.name[:min(len(p.name), 40)])
	}
	if b.Len() == 0 {
		return "body"
	}
	return strings.ToValidUTF8(b.String(), "")
}

func (c *jsonChecker) refuse(format string, args ...any) error {
	field := c.field()
	return models.Errorf(models.CodeInvalidRequest, "%s: %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

func (c *jsonChecker) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return
		}
	}
}

func (c *jsonChecker) value(s *shape) error {
	c.space()
	var kind shapeKind
	switch c.b[c.i] {
	case '{':
		kind = objectValue
	case '[':
		kind = arrayValue
	case '"':
		kind = stringValue
	case 't', 'f':
		kind = booleanValue
	case 'n':
		c.i += len("null")
		if !s.nullable {
			return c.refuse("must be %s, not null", s.kind)
		}
		return nil
	default:
		kind = integerValue
	}
	if s.kind != anyValue && s.kind != kind {
		return c.refuse("must be %s", s.kind)
	}
	if (kind == objectValue || kind == arrayValue) && c.depth == maxDepth {
		return models.Errorf(models.CodeInvalidRequest, "the body is nested more than %d deep", maxDepth)
	}
	switch kind {
	case objectValue:
		return c.object(s)
	case arrayValue:
		return c.array(s)
	case stringValue:
		_, err := c.str()
		return err
	case booleanValue:
		if c.b[c.i] == 't' {
			c.i += len("true")
		} else {
			c.i += len("false")
		}
		return nil
	default:
		return c.number(s)
	}
}

func (c *jsonChecker) object(s *shape) error {
	var few [16][]byte
	names := few[:0]
	var many map[string]bool
	c.i++
	for {
		c.space()
		switch c.b[c.i] {
		case '}':
			c.i++
			return nil
		case ',':
			c.i++
			continue
		}
		name, err := c.str()
		if err != nil {
			return err
		}
		c.at[c.depth] = place{name: name}
		c.depth++
		twice := many[string(name)]
		for _, n := range names {
			twice = twice || bytes.Equal(n, name)
		}
		if twice {
			return c.refuse("is given twice")
		}
		switch {
		case many != nil:
			many[string(name)] = true
		case len(names) < len(few):
			names = append(names, name)
		default:
			many = map[string]bool{string(name): true}
			for _, n := range names {
				many[string(n)] = true
			}
			names = nil
		}
		value := anyShape
		if s.kind == objectValue {
			if value = s.fields[string(name)]; value == nil {
				return c.refuse("there is no such field")
			}
		}
		c.space()
		c.i++ // the colon
		c.space()
		if c.depth == 1 && c.b[c.i] != 'n' {
			c.present = append(c.present, string(name))
		}
		if err := c.value(value); err != nil {
			return err
		}
		c.depth--
	}
}

func (c *jsonChecker) array(s *shape) error {
	elem := anyShape
	if s.kind == arrayValue {
		elem = s.elem
	}
	c.i++
	for n := 0; ; {
		c.space()
		switch c.b[c.i] {
		case ']':
			c.i++
			return nil
		case ',':
			c.i++
			continue
		}
		c.at[c.depth] = place{n: n}
		c.depth++
		if err := c.value(elem); err != nil {
			return err
		}
		c.depth--
		n++
	}
}

// str reads a string and returns its text, not nil.
func (c *jsonChecker) str() ([]byte, error) {
	start := c.i
	escaped := false
	for c.i++; c.b[c.i] != '"'; c.i++ {
		if c.b[c.i] != '\\' {
			continue
		}
		escaped = true
		c.i++
		if c.b[c.i] != 'u' {
			continue
		}
		switch r := hex4(c.b[c.i+1:]); {
		case r == 0:
			return nil, c.refuse("holds a NUL character")
		case r >= 0xdc00 && r <= 0xdfff:
			return nil, c.refuse("holds half of a surrogate pair")
		case r >= 0xd800 && r <= 0xdbff:
			rest := c.b[c.i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || hex4(rest[2:]) < 0xdc00 || hex4(rest[2:]) > 0xdfff {
				return nil, c.refuse("holds half of a surrogate pair")
			}
			c.i += 6
		}
		c.i += 4
	}
	c.i++
	if !escaped {
		return c.b[start+1 : c.i-1], nil
	}
	var s string
	err := json.Unmarshal(c.b[start:c.i], &s)
	return []byte(s), err
}

// hex4 reads four hexadecimal digits, which are known to be there.
func hex4(b []byte) rune {
	n, err := strconv.ParseUint(string(b[:4]), 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n) // #nosec G115 -- four digits
}

func (c *jsonChecker) number(s *shape) error {
	start := c.i
	for c.i < len(c.b) && isNumeric(c.b[c.i]) {
		c.i++
	}
	text := c.b[start:c.i]
	if s.kind == integerValue {
		_, err := strconv.ParseInt(string(text), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return c.refuse("is out of range")
		case err != nil:
			return c.refuse("must be a whole number, written with digits only")
		}
		return nil
	}
	if len(text) > maxNumber {
		return c.refuse("is a number of more than %d digits", maxNumber)
	}
	if k := bytes.IndexAny(text, "eE"); k >= 0 {
		if e, err := strconv.Atoi(string(text[k+1:])); err != nil || e > maxExponent || e < -maxExponent {
			return c.refuse("is a number out of range")
		}
	}
	return nil
}

func isNumeric(b byte) bool {
	return b >= '0' && b <= '9' || b == '-' || b == '+' || b == '.' || b == 'e' || b == 'E'
}
