package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"berth/client"
	"berth/models"
)

// Exit codes; the help text lists them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitChanged     = 5
	exitNotAllowed  = 6
	exitPartly      = 7
	exitInterrupted = 130
)

// usageError: the command line makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// toldError has been printed already.
type toldError struct {
	code int
}

func (e toldError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitCode is what a command ends with.
func exitCode(ctx context.Context, err error) int {
	var told toldError
	var usage usageError
	var state *client.StateError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &told):
		return told.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, client.ErrChanged), errors.Is(err, client.ErrCorrupt):
		return exitChanged
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	case errors.As(err, &state):
		if n := codeExit(state.Code()); n != exitFailed {
			return n
		}
		switch models.FileState(state.State) {
		case models.FileBlocked, models.FileDeleting, models.FileDeleted:
			return exitRefused
		}
		return exitFailed
	}
	return codeExit(client.Code(err))
}

func codeExit(c models.Code) int {
	switch c {
	case models.CodeNotFound:
		return exitNotFound
	case models.CodeUnauthenticated, models.CodeForbidden:
		return exitNotAllowed
	case models.CodeQuotaExceeded, models.CodeTooLarge, models.CodeTypeNotAllowed, models.CodeDuplicateFile,
		models.CodeMetadataInvalid, models.CodeInvalidRequest:
		return exitRefused
	case models.CodeChecksumMismatch, models.CodeDigestMismatch, models.CodePartConflict, models.CodePartCorrupt,
		models.CodeSizeMismatch, models.CodeBlobCorrupt:
		return exitChanged
	}
	return exitFailed
}

// several is the exit of a command with many arguments: their common code if all
// failed alike, "some failed" otherwise.
type several struct {
	done, failed int
	code         int
}

func (s *several) add(ctx context.Context, err error) {
	if err == nil {
		s.done++
		return
	}
	c := exitCode(ctx, err)
	if s.failed == 0 {
		s.code = c
	} else if s.code != c {
		s.code = exitFailed
	}
	s.failed++
}

func (s *several) err() error {
	switch {
	case s.failed == 0:
		return nil
	case s.done > 0 && s.code != exitInterrupted:
		return toldError{exitPartly}
	default:
		return toldError{s.code}
	}
}
