package main

import "syscall"

// supervisorAttr gives the supervisor a session of its own, so that a ^C or a
// closed terminal does not reach it. Attached, it is asked to stop when its
// starter dies.
func supervisorAttr(attached bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if attached {
		a.Pdeathsig = syscall.SIGTERM
	}
	return a
}
