//go:build !linux

package parts

import "syscall"

// Elsewhere nothing ties a child to its parent's death, and the parts run as
// whoever starts them.
func sysProcAttr(syscall.Signal, *User) *syscall.SysProcAttr { return nil }

func reachable(string, *User) bool { return true }

// storesAttributes is false where we cannot tell: the sidecar works everywhere.
func storesAttributes(string) bool { return false }

// free matters for /dev/shm alone, which is Linux's.
func free(string) int64 { return 0 }
