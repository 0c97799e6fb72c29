package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"berth/client/wire"
)

type runCmd struct {
	Size int64 `default:"209715200" help:"Bytes of the file that is sent; 0 sends none."`
}

// Run is up in the foreground, with a file sent through it.
func (r *runCmd) Run() error {
	p, err := here()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("Starting the local cloud (PostgreSQL, versitygw as S3, kumo as SQS, berthd) ...")
	begun := time.Now()
	s, err := spawn(p, true)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var endErr error // readable after ended
	go func() {
		endErr = s.cmd.Wait()
		close(ended)
	}()
	go func() {
		<-ctx.Done()
		// Gone already, if this is an error.
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}()
	if err := s.ready(); err != nil {
		<-ended
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTaken):
			return errors.New("the local cloud runs already; make down stops it")
		}
		return err
	}
	fmt.Printf("Up in %.1f s.\n\n", time.Since(begun).Seconds())
	vars, err := readEnv(p.env())
	if err == nil && r.Size > 0 {
		err = send(ctx, p, vars, r.Size)
	}
	if err != nil && ctx.Err() == nil {
		stop() // the supervisor too
		<-ended
		return err
	}
	if ctx.Err() == nil {
		fmt.Printf("\nUpload page: %s\nVariables: .dev/env   Logs: .dev/log   Stop: ^C\n", pageLink(vars))
	}
	select {
	case <-ended: // by make down, or because a part ended
	case <-ctx.Done():
		fmt.Println("\nStopping ...")
		<-ended
	}
	if endErr != nil {
		return fmt.Errorf("the local cloud: %w; see .dev/log/supervisor.log", endErr)
	}
	fmt.Println("Stopped. The data stays in .dev; make clean removes it.")
	return nil
}

// send makes a file that nobody has seen and sends it as a user would.
func send(ctx context.Context, p place, vars map[string]string, size int64) error {
	berth, err := p.bin("berth")
	if err != nil {
		return err
	}
	file := p.file("hello.bin")
	if err := randomFile(file, size); err != nil {
		return fmt.Errorf("sample file: %w", err)
	}
	defer os.Remove(file)
	fmt.Printf("Sending a file of %d MiB of random bytes: berth put .dev/hello.bin --collection default\n", size>>20)
	cmd := exec.CommandContext(ctx, berth, "put", file, "--collection", "default", "--json", "--no-resume")
	cmd.Env = append(plainEnv(), envURL+"="+vars[envURL], envToken+"="+vars[envToken])
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("berth put: %w\n%s%s", err, out.String(), problems.String())
	}
	took := time.Since(begun)
	var line struct {
		State string    `json:"state"`
		File  wire.File `json:"file"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		return fmt.Errorf("berth put: its answer is not JSON: %w\n%s", err, out.String())
	}
	f := line.File
	if f.State != "active" || f.Size != size {
		return fmt.Errorf("berth put: the file is %s with %d bytes, not active with %d", f.State, f.Size, size)
	}
	fmt.Printf("Sent straight to S3 in %.2f s, %.0f MiB/s", took.Seconds(), float64(size)/(1<<20)/took.Seconds())
	if f.PartSize > 0 {
		fmt.Printf(", in %d parts of %d MiB", (size+f.PartSize-1)/f.PartSize, f.PartSize>>20)
	}
	fmt.Printf(".\nFile %s is %s, version %s: S3 attested its size and %s.\n", f.ID, f.State, f.VersionID, f.Checksum.Algorithm)
	return nil
}

func randomFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(rand.NewChaCha8(seed), size), make([]byte, 1<<20)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
