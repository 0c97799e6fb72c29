//go:build unix && !linux

package main

import "syscall"

func supervisorAttr(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
