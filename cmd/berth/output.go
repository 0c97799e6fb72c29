package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"berth/client"
	"berth/client/wire"

	"github.com/mattn/go-isatty"
)

// failure is an error in JSON.
type failure struct {
	Path      string `json:"path,omitempty"`
	ID        string `json:"id,omitempty"`
	Error     string `json:"error"`
	Code      string `json:"code,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Exit      int    `json:"exit"`
}

func (e *env) failureOf(path, id string, err error) failure {
	f := failure{Path: path, ID: id, Error: err.Error(), Code: string(client.Code(err)), Exit: exitCode(e.ctx, err)}
	var answered *client.Error
	if errors.As(err, &answered) {
		f.RequestID = answered.RequestID
	}
	var state *client.StateError
	if errors.As(err, &state) {
		f.Code = string(state.Code())
	}
	return f
}

// fail prints an error of the whole command.
func (e *env) fail(err error) {
	if e.root.JSON {
		e.json(e.failureOf("", "", err))
	}
	fmt.Fprintf(e.stderr, "berth: %s\n", printable(err.Error()))
}

// json prints one line.
func (e *env) json(v any) {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// printable takes what could steer a terminal out of somebody else's text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// bytesText is a size for people: 1536 is 1.5 KiB.
func bytesText(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), 0
	for v >= 1023.95 && unit < 6 {
		v /= 1024
		unit++
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + string("BKMGTPE"[unit]) + "iB"
}

func rateText(bytes int64, d time.Duration) string {
	if d < time.Millisecond {
		return "-"
	}
	return bytesText(int64(float64(bytes)/d.Seconds())) + "/s"
}

func durationText(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func checksumText(c wire.Checksum) string {
	if c.Value == "" {
		return ""
	}
	s := c.Algorithm
	if c.Type != "" {
		s += " " + c.Type
	}
	return s + " " + c.Value
}
