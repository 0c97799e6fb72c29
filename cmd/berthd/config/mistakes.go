package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// place is where a value was given: a line of the file, or a variable.
type place struct {
	line, column int
	env          string
}

// Mistake is one thing that is wrong in a configuration.
type Mistake struct {
	File   string
	Line   int // from 1; 0: not of a line
	Column int
	Env    string // the variable, if it is one's value
	Key    string // path, "" for the whole
	What   string
}

func (m Mistake) Error() string {
	var b strings.Builder
	switch {
	case m.Env != "":
		b.WriteString("$" + m.Env + ": ")
	case m.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", m.File, m.Line, m.Column)
	case m.File != "":
		b.WriteString(m.File + ": ")
	}
	if m.Key != "" {
		b.WriteString(m.Key + ": ")
	}
	b.WriteString(m.What)
	return b.String()
}

// Mistakes are all that is wrong, in the order of the file.
type Mistakes []Mistake

func (ms Mistakes) Error() string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.Error()
	}
	if len(lines) == 1 {
		return "config: " + lines[0]
	}
	return fmt.Sprintf("config: %d mistakes:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// wrong notes a mistake at the key's own place, or at the nearest one above it. Only
// the first mistake of a key, and of what is below it, counts: the rest would be noise.
func (l *loader) wrong(key, format string, args ...any) {
	for k, more := key, true; more; k, more = above(k) {
		if l.bad[k] {
			return
		}
	}
	l.bad[key] = true
	p := l.nearest(key)
	l.mistakes = append(l.mistakes, Mistake{
		File: l.file, Line: p.line, Column: p.column, Env: p.env, Key: key, What: fmt.Sprintf(format, args...),
	})
}

func (l *loader) nearest(key string) place {
	for {
		if p, ok := l.at[key]; ok {
			return p
		}
		var more bool
		if key, more = above(key); !more {
			return place{}
		}
	}
}

// above is the path that a key's path is in.
func above(key string) (string, bool) {
	i := strings.LastIndexAny(key, ".[")
	if i < 0 {
		return "", false
	}
	return key[:i], true
}

func (l *loader) err() error {
	if len(l.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(l.mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Env, b.Env), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key))
	})
	return Mistakes(l.mistakes)
}

// like returns ", did you mean …?" if one of the known words is at most two edits away.
func like(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := edits(word, k); d < least && d < len(word) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// edits is the Levenshtein distance; words of very different length are just far.
func edits(a, b string) int {
	if max(len(a), len(b))-min(len(a), len(b)) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
