package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Secret is a value that is never printed. Only YAML writes it out, so that a
// configuration can be made by a program.
type Secret string

const redacted = "[redacted]"

// String is a mark, or "" if there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON is String, for JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String is the configuration as one line of JSON, without its secrets.
func (c *Config) String() string {
	b, err := json.Marshal(c)
	if err != nil {
		return "config: " + err.Error()
	}
	return string(b)
}

// LogValue is String.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Bytes is a number of bytes: 1048576 or "1MiB". Units: B, kB, MB, GB, TB of 1000 and
// KiB, MiB, GiB, TiB of 1024.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// UnmarshalText reads a size. It is whole and not negative.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return errors.New("is too large")
		}
		return errors.New(`is not a size such as 1048576 or "10MiB"`)
	}
	if int64(n) > math.MaxInt64/unit { // #nosec G115 -- 63 bits
		return errors.New("is too large")
	}
	*b = Bytes(int64(n) * unit) // #nosec G115 -- 63 bits
	return nil
}

// MarshalText writes the largest binary unit that divides it.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, u := range byteUnits[:4] {
		if b != 0 && int64(b)%u.size == 0 {
			return fmt.Appendf(nil, "%d%s", int64(b)/u.size, u.name), nil
		}
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}

// Duration is a length of time: a Go duration, with days: "90s", "1h30m", "7d",
// "1d12h". A day has 24 hours.
type Duration time.Duration

const day = 24 * time.Hour

// UnmarshalText reads a duration. It is not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	const form = `is not a duration such as "90s", "1h30m" or "7d"`
	s := strings.TrimSpace(string(text))
	var sum time.Duration
	days, rest, ok := strings.Cut(s, "d")
	if ok {
		n, err := strconv.ParseUint(days, 10, 31)
		if err != nil {
			return errors.New(form)
		}
		if n > uint64(math.MaxInt64/day) {
			return errors.New("is too long")
		}
		sum, s = time.Duration(n)*day, rest // #nosec G115 -- 31 bits
	}
	if s != "" || !ok {
		rest, err := time.ParseDuration(s)
		if err != nil {
			return errors.New(form)
		}
		if rest < 0 {
			return errors.New("is negative")
		}
		if sum > math.MaxInt64-rest {
			return errors.New("is too long")
		}
		sum += rest
	}
	*d = Duration(sum)
	return nil
}

// MarshalText writes whole days as days.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string {
	t := time.Duration(d)
	if t > 0 && t%day == 0 {
		return strconv.FormatInt(int64(t/day), 10) + "d"
	}
	return t.String()
}

// Std is the duration as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }
