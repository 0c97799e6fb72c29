package worker

import "fmt"

// caught turns a panic of one piece of work into its error: the others, and the process,
// go on. The lease runs out, and the attempt counts.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
	}
}
