package main

import (
	"fmt"
	"strings"
)

type rmCommand struct {
	IDs []string `arg:"" name:"id" help:"Files, fil_…, or uploads, upl_…"`
}

type rmLine struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

func (r *rmCommand) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	var sum several
	for _, id := range r.IDs {
		line := rmLine{ID: id}
		if strings.HasPrefix(id, "upl_") {
			up, aerr := c.Abort(e.ctx, id)
			if err = aerr; err == nil {
				line.State = up.State
			}
		} else {
			f, derr := c.Delete(e.ctx, id)
			if err = derr; err == nil {
				line.State = f.State
			}
		}
		sum.add(e.ctx, err)
		switch {
		case err != nil:
			if e.root.JSON {
				e.json(e.failureOf("", id, err))
			}
			fmt.Fprintf(e.stderr, "berth: %s: %s\n", printable(id), printable(err.Error()))
		case e.root.JSON:
			e.json(line)
		default:
			fmt.Fprintf(e.stdout, "%s  %s\n", line.ID, line.State)
		}
		if e.ctx.Err() != nil {
			return toldError{exitInterrupted}
		}
	}
	return sum.err()
}
