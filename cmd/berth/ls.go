package main

import (
	"fmt"
	"time"

	"berth/client"
)

type lsCommand struct {
	Collection string `short:"c" help:"Of this collection only."`
	State      string `short:"s" help:"In this state only: active, preparing, processing, blocked, failed, …"`
	Limit      int    `short:"l" default:"0" help:"At most so many; 0: all."`
}

func (l *lsCommand) Run(e *env) error {
	if l.Limit < 0 {
		return usagef("--limit must not be negative")
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	o := client.ListOptions{Collection: l.Collection, State: l.State}
	if l.Limit > 0 && l.Limit < 1000 {
		o.PageSize = l.Limit
	} else {
		o.PageSize = 1000
	}
	n := 0
	for f, err := range c.Files(e.ctx, o) {
		if err != nil {
			return err
		}
		if e.root.JSON {
			e.json(f)
		} else {
			fmt.Fprintf(e.stdout, "%s  %-13s %10s  %s  %s\n", f.ID, f.State, bytesText(f.Size),
				f.CreatedAt.Local().Format(time.DateTime), printable(f.Name))
		}
		if n++; n == l.Limit {
			break
		}
	}
	return nil
}
