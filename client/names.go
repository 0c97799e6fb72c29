package client

import (
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLocalName leaves room for the suffixes that GetFile adds, in bytes: file
// systems take 255.
const maxLocalName = 255 - len(stateSuffix) - 12

// reserved names of Windows, with any extension; kept away everywhere, since a folder
// may be shared.
var reserved = map[string]bool{
	"CON": true, "PRN": true, "AUX": true, "NUL": true,
	"COM1": true, "COM2": true, "COM3": true, "COM4": true, "COM5": true, "COM6": true, "COM7": true, "COM8": true, "COM9": true,
	"LPT1": true, "LPT2": true, "LPT3": true, "LPT4": true, "LPT5": true, "LPT6": true, "LPT7": true, "LPT8": true, "LPT9": true,
}

// LocalName makes a file name of a record's name that stays in its folder, is
// not hidden, and shows itself as what it is. The server's word for a name is
// somebody else's.
func LocalName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, strings.ContainsRune(`/\<>:"|?*`, r):
			return '_'
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return -1
		}
		return r
	}, name)
	name = strings.TrimSpace(name)
	name = strings.TrimRight(name, ". ")
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") {
		name = "_" + name[1:]
	}
	if strings.Trim(name, "_") == "" {
		name = "file"
	}
	if stem, _, _ := strings.Cut(name, "."); reserved[strings.ToUpper(strings.TrimSpace(stem))] {
		name = "_" + name
	}
	if len(name) > maxLocalName {
		ext := filepath.Ext(name)
		if len(ext) > 32 {
			ext = ""
		}
		cut := maxLocalName - len(ext)
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = strings.TrimRight(name[:cut], ". ") + ext
	}
	return name
}
