package models

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What is shown of a name can be shown: it is what was sent without what cannot be seen,
// and the same again when it is cleaned again.
func FuzzCleanName(f *testing.F) {
	for _, s := range []string{
		"a.pdf", " a ", "a\x00b", "../../etc/passwd", "a/b", `a\b`, ".", "..", "...", ". .", "", "\u202efdp.exe", "a\u2028b", "\ufeffa", "\u200b", "\xff",
		"résumé.pdf", "re\u0301sume\u0301", strings.Repeat("a", 512), strings.Repeat("a", 513), strings.Repeat("ä", 512), strings.Repeat("😀", 257),
		"a\r\nX-Evil: 1", `a"; filename="b`, "a%00b", "CON", "-rf", "\u0085", "\u3000a\u3000",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := CleanName(s)
		if err != nil {
			if ErrorCode(err) != CodeInvalidRequest || got != "" {
				t.Fatalf("%q: %q, %v", s, got, err)
			}
			return
		}
		if !utf8.ValidString(got) || len(got) > MaxNameBytes || utf8.RuneCountInString(got) > MaxNameRunes || strings.Trim(got, ".") == "" ||
			strings.ContainsAny(got, "/\\") || strings.TrimSpace(got) != got {
			t.Fatalf("%q became %q", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("%q became %q, with %U", s, got, r)
			}
		}
		if again, err := CleanName(got); err != nil || again != got {
			t.Fatalf("%q became %q, and that %q, %v", s, got, again, err)
		}
		rest := []rune(s)
		for _, r := range got { // in order, out of what was sent
			for len(rest) > 0 && rest[0] != r {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Fatalf("%q became %q", s, got)
			}
			rest = rest[1:]
		}
	})
}

// Of a name, a key holds the extension at most, and that is plain.
func FuzzKeyOfAName(f *testing.F) {
	for _, s := range []string{"a.pdf", "a.PDF", "a", "a.", ".pdf", "a.tar.gz", "a.p/f", "a.\u212a", "a.pdf ", "../x.sh", "a.ex%2fe", "a." + strings.Repeat("x", 17), "a.\x00", "\xff.a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		const prefix, collection = "b/", "c"
		key := NewKey(prefix, collection, Extension(name))
		rest, ok := strings.CutPrefix(key, prefix+collection+"/")
		if !ok || len(rest) < 32 || strings.Trim(rest[:32], "0123456789abcdef") != "" {
			t.Fatalf("%q made %q", name, key)
		}
		if ext := rest[32:]; ext != "" && (ext[0] != '.' || len(ext) < 2 || len(ext) > 1+MaxExtension ||
			strings.Trim(ext[1:], "abcdefghijklmnopqrstuvwxyz0123456789") != "" || !strings.HasSuffix(strings.ToLower(name), ext)) {
			t.Fatalf("%q made %q", name, key)
		}
		if again := NewKey(prefix, collection, Extension(name)); again == key {
			t.Fatalf("%q made %q twice", name, key)
		}
	})
}
