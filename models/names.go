package models

import (
	"mime"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a caller may state.
const (
	MaxNameBytes     = 1024
	MaxNameRunes     = 512
	MaxTypeBytes     = 255
	MaxMetadataBytes = 16 << 10
	MaxExtension     = 16
)

// CleanName checks and cleans a display name. It never becomes part of a key, so
// what is kept is what people may read: a NUL, a slash, a name of only dots, or bytes
// that are not UTF-8 are refused; other control characters and bidirectional marks,
// with which a name can pretend to be another, are taken out; white space at the ends
// goes.
func CleanName(s string) (string, error) {
	bad := func(why string) (string, error) {
		return "", Errorf(CodeInvalidRequest, "name: %s", why).With("field", "name")
	}
	if s == "" {
		return bad("is empty")
	}
	if len(s) > MaxNameBytes {
		return bad("is longer than 1024 bytes")
	}
	if !utf8.ValidString(s) {
		return bad("is not UTF-8")
	}
	if strings.ContainsAny(s, "\x00/\\") {
		return bad("holds a NUL or a slash; send the name only, not a path")
	}
	clean := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return -1
		}
		return r
	}, s))
	if strings.Trim(clean, ".") == "" {
		return bad("has nothing to show")
	}
	if utf8.RuneCountInString(clean) > MaxNameRunes {
		return bad("is longer than 512 characters")
	}
	return clean, nil
}

// Extension is the name's extension, lower case, without the dot; "" unless it is 1
// to 16 ASCII letters and digits, since it becomes part of the key.
func Extension(name string) string {
	ext := strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
	if ext == "" || len(ext) > MaxExtension {
		return ""
	}
	for _, r := range ext {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return ""
		}
	}
	return ext
}

// CleanContentType checks a media type and returns it in its canonical form;
// "" becomes application/octet-stream.
func CleanContentType(s string) (string, error) {
	if s == "" {
		return "application/octet-stream", nil
	}
	refuse := func(why string) (string, error) {
		return "", Errorf(CodeInvalidRequest, "content_type: %s", why).With("field", "content_type")
	}
	if len(s) > MaxTypeBytes {
		return refuse("is longer than 255 bytes")
	}
	t, params, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(t, "/") {
		return refuse("is not a media type")
	}
	out := mime.FormatMediaType(t, params)
	if out == "" || strings.IndexFunc(out, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return refuse("is not a media type of plain ASCII")
	}
	return out, nil
}

// TypeAllowed tells whether a media type is in a list in which "image/*" stands for
// a whole family. An empty list allows all.
func TypeAllowed(list []string, contentType string) bool {
	if len(list) == 0 {
		return true
	}
	t, _, _ := strings.Cut(contentType, ";")
	t = strings.ToLower(strings.TrimSpace(t))
	family, _, _ := strings.Cut(t, "/")
	return slices.Contains(list, t) || slices.Contains(list, family+"/*") || slices.Contains(list, "*/*")
}
