//go:build !unix

package main

import (
	"errors"
	"os"
)

func tryLock(string) (*os.File, error) {
	return nil, errors.New("the local cloud runs on Unix-like systems only")
}
