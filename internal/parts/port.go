package parts

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ErrPortBusy is in the error of a part whose port somebody else listens on.
var ErrPortBusy = errors.New("port is busy")

// Addr is the loopback address of a port.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreePort returns a loopback port that nobody listens on at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", Addr(0))
	if err != nil {
		return 0, fmt.Errorf("free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// CheckPort says so, with the part and the port, when somebody listens on port.
func CheckPort(part string, port int) error {
	l, err := net.Listen("tcp", Addr(port))
	if err != nil {
		return fmt.Errorf("%s: port %d: %w (%w)", part, port, ErrPortBusy, err)
	}
	return l.Close()
}

// onPort runs start on the wanted port, or, when that is 0, on a free one. A
// free port can be taken between the look and the part's own bind, so it tries
// a few.
func onPort(part string, want int, start func(port int) error) error {
	if want != 0 {
		if err := CheckPort(part, want); err != nil {
			return err
		}
		return AsPortBusy(part, want, start(want))
	}
	var err error
	for range 5 {
		var port int
		if port, err = FreePort(); err != nil {
			return err
		}
		if err = AsPortBusy(part, port, start(port)); !errors.Is(err, ErrPortBusy) {
			return err
		}
	}
	return err
}

// AsPortBusy makes an ErrPortBusy of a part's own complaint about its port. It
// goes by the text: the part prints it, and may be anybody's program.
func AsPortBusy(part string, port int, err error) error {
	if err == nil || errors.Is(err, ErrPortBusy) || !strings.Contains(strings.ToLower(err.Error()), "address already in use") {
		return err
	}
	return fmt.Errorf("%s: port %d: %w (%w)", part, port, ErrPortBusy, err)
}
