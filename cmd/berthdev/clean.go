package main

import (
	"errors"
	"fmt"
	"os"
)

type cleanCmd struct{}

// Run keeps .dev/bin: it holds no data, and takes minutes to make again.
func (cleanCmd) Run() error {
	p, err := here()
	if err != nil {
		return err
	}
	if err := down(p); err != nil {
		return err
	}
	paths, err := p.data()
	if err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	fmt.Println("removed the local cloud's data")
	return nil
}
