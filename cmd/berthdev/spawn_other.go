//go:build !unix

package main

import "syscall"

func supervisorAttr(bool) *syscall.SysProcAttr { return nil }
