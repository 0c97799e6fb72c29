package config

import (
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{
		"0": 0, "1": 1, "5B": 5, "10MiB": 10 << 20, "10 MB": 10e6, "1kB": 1000, "1KiB": 1024, "8388607TiB": 8388607 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: got %d, %v", text, b, err)
		}
		again, _ := b.MarshalText()
		var c Bytes
		if err := c.UnmarshalText(again); err != nil || c != b {
			t.Errorf("%q: written as %s, read as %d, %v", text, again, c, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "10mib", "1e3", "0x10", "8388608TiB", "9223372036854775808", "1 0"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d", text, b)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0s": 0, "0": 0, "0d": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "100ms": 100 * time.Millisecond,
	} {
		var d Duration
		err := d.UnmarshalText([]byte(text))
		if err != nil || d.Std() != want {
			t.Errorf("%q: got %s, %v", text, d, err)
		}
		again, _ := d.MarshalText()
		var e Duration
		if err := e.UnmarshalText(again); err != nil || e != d {
			t.Errorf("%q: written as %s, read as %s, %v", text, again, e, err)
		}
	}
	for _, text := range []string{"", " ", "-1s", "1", "7 days", "d", "-1d", "1d-2h", "106752d", "106751d24h", "1h1d"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %s", text, d)
		}
	}
}
