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
	if err := c.value(s, nil, 1); err != nil {
		return nil, err
	}
	return c.present, nil
}

// jsonChecker walks over bytes that are known to be valid JSON.
type jsonChecker struct {
	b       []byte
	i       int
	present []string
}

// place is where a value stands, for messages.
type place struct {
	up   *place
	name string
	n    int // in a list, if name is empty
}

func (p *place) String() string {
	if p == nil {
		return "body"
	}
	own := p.name
	if own == "" {
		own = "[" + strconv.Itoa(p.n) + "]"
	} else if len(own) > 40 {
		own = own[:40] + "…"
	}
	if p.up == nil {
		return own
	}
	if p.name == "" {
		return p.up.String() + own
	}
	return p.up.String() + "." + own
}

func (c *jsonChecker) refuse(at *place, format string, args ...any) error {
	field := strings.ToValidUTF8(at.String(), "")
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

func (c *jsonChecker) value(s *shape, at *place, depth int) error {
	if depth > maxDepth {
		return models.Errorf(models.CodeInvalidRequest, "the body is nested more than %d deep", maxDepth)
	}
	c.space()
	expect := func(k shapeKind) error {
		if s.kind != anyValue && s.kind != k {
			return c.refuse(at, "must be %s", s.kind)
		}
		return nil
	}
	switch c.b[c.i] {
	case '{':
		if err := expect(objectValue); err != nil {
			return err
		}
		return c.object(s, at, depth)
	case '[':
		if err := expect(arrayValue); err != nil {
			return err
		}
		return c.array(s, at, depth)
	case '"':
		if err := expect(stringValue); err != nil {
			return err
		}
		_, err := c.str(at)
		return err
	case 't', 'f':
		if c.b[c.i] == 't' {
			c.i += len("true")
		} else {
			c.i += len("false")
		}
		return expect(booleanValue)
	case 'n':
		c.i += len("null")
		if !s.nullable {
			return c.refuse(at, "must be %s, not null", s.kind)
		}
		return nil
	default:
		if err := expect(integerValue); err != nil {
			return err
		}
		return c.number(s, at)
	}
}

func (c *jsonChecker) object(s *shape, at *place, depth int) error {
	var few [16]string
	names := few[:0]
	var many map[string]bool
	c.i++
	for {
		c.space()
		if c.b[c.i] == '}' {
			c.i++
			return nil
		}
		if c.b[c.i] == ',' {
			c.i++
			continue
		}
		name, err := c.str(at)
		if err != nil {
			return err
		}
		here := &place{up: at, name: name}
		twice := many[name]
		if many == nil {
			for _, n := range names {
				twice = twice || n == name
			}
		}
		if twice {
			return c.refuse(here, "is given twice")
		}
		switch {
		case many != nil:
			many[name] = true
		case len(names) == cap(names):
			many = make(map[string]bool, 2*len(names))
			for _, n := range names {
				many[n] = true
			}
			many[name] = true
		default:
			names = append(names, name)
		}
		value := anyShape
		if s.kind == objectValue {
			if value = s.fields[name]; value == nil {
				return c.refuse(here, "there is no such field")
			}
		}
		c.space()
		c.i++ // the colon
		c.space()
		if depth == 1 && c.b[c.i] != 'n' {
			c.present = append(c.present, name)
		}
		if err := c.value(value, here, depth+1); err != nil {
			return err
		}
	}
}

func (c *jsonChecker) array(s *shape, at *place, depth int) error {
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
		if err := c.value(elem, &place{up: at, n: n}, depth+1); err != nil {
			return err
		}
		n++
	}
}

// str reads a string and returns its text.
func (c *jsonChecker) str(at *place) (string, error) {
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
			return "", c.refuse(at, "holds a NUL character")
		case r >= 0xdc00 && r <= 0xdfff:
			return "", c.refuse(at, "holds half of a surrogate pair")
		case r >= 0xd800 && r <= 0xdbff:
			rest := c.b[c.i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || hex4(rest[2:]) < 0xdc00 || hex4(rest[2:]) > 0xdfff {
				return "", c.refuse(at, "holds half of a surrogate pair")
			}
			c.i += 6
		}
		c.i += 4
	}
	c.i++
	if !escaped {
		return string(c.b[start+1 : c.i-1]), nil
	}
	var s string
	err := json.Unmarshal(c.b[start:c.i], &s)
	return s, err
}

// hex4 reads four hexadecimal digits, which are known to be there.
func hex4(b []byte) rune {
	n, err := strconv.ParseUint(string(b[:4]), 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n) // #nosec G115 -- four digits
}

func (c *jsonChecker) number(s *shape, at *place) error {
	start := c.i
	for c.i < len(c.b) && bytes.IndexByte([]byte("+-.0123456789eE"), c.b[c.i]) >= 0 {
		c.i++
	}
	text := string(c.b[start:c.i])
	if s.kind == integerValue {
		_, err := strconv.ParseInt(text, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return c.refuse(at, "is out of range")
		case err != nil:
			return c.refuse(at, "must be a whole number, written with digits only")
		}
		return nil
	}
	if len(text) > maxNumber {
		return c.refuse(at, "is a number of more than %d digits", maxNumber)
	}
	if k := strings.IndexAny(text, "eE"); k >= 0 {
		if e, err := strconv.Atoi(text[k+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return c.refuse(at, "is a number out of range")
		}
	}
	return nil
}
