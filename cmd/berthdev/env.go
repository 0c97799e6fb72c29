package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/parts"

	"github.com/golang-jwt/jwt/v5"
)

// The variables of .dev/env: what a program needs to use the local cloud.
const (
	envURL       = "BERTH_URL"
	envToken     = "BERTH_TOKEN"
	envJWTSecret = "BERTH_JWT_SECRET"
	envDatabase  = "BERTH_DATABASE_URL"
	envS3        = "BERTH_S3_ENDPOINT"
	envBucket    = "BERTH_S3_BUCKET"
	envAccessKey = "AWS_ACCESS_KEY_ID"
	envSecretKey = "AWS_SECRET_ACCESS_KEY"
	envRegion    = "AWS_REGION"
	envSQS       = "BERTH_SQS_ENDPOINT"
	envQueueURL  = "BERTH_SQS_QUEUE_URL"
)

// envOrder is how the file lists them.
var envOrder = []string{
	envURL, envToken, envJWTSecret, envDatabase, envS3, envBucket, envAccessKey, envSecretKey, envRegion, envSQS, envQueueURL,
}

// readEnv reads NAME=value lines; no file is an empty map.
func readEnv(file string) (map[string]string, error) {
	vars := map[string]string{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return vars, nil
	}
	if err != nil {
		return nil, fmt.Errorf("env: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export "), "=")
		if ok && !strings.HasPrefix(name, "#") {
			vars[name] = strings.Trim(value, `'"`)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("env: %s: %w", file, err)
	}
	return vars, nil
}

// writeEnv puts the variables into a file that a shell can source and that only
// we can read. It is replaced whole: a reader never sees half of it.
func writeEnv(file string, vars map[string]string) error {
	var b strings.Builder
	b.WriteString("# Berth's local cloud. Use it with: set -a; . .dev/env; set +a\n")
	for _, name := range envOrder {
		fmt.Fprintf(&b, "%s='%s'\n", name, vars[name])
	}
	return replaceFile(file, []byte(b.String()))
}

// replaceFile writes a file of mode 0600 in one step.
func replaceFile(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(content); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// The ports of a first start, below those that the system gives out by itself.
const (
	portAPI      = 8080
	portPostgres = 15432
	portS3       = 15433
	portSQS      = 15434
)

// onPort starts a part on the port of the last time, which a variable of
// .dev/env has, or on the first one's. If somebody else is on it by now, it
// takes another, and says so.
func (c *cloud) onPort(what, variable string, first int, start func(port int) error) error {
	port := first
	if u, err := url.Parse(c.last[variable]); err == nil {
		if n, err := strconv.Atoi(u.Port()); err == nil && n > 0 {
			port = n
		}
	}
	for try := 0; ; try++ {
		err := start(port)
		if try == 5 || !errors.Is(err, parts.ErrPortBusy) {
			return err
		}
		another, freeErr := parts.FreePort()
		if freeErr != nil {
			return errors.Join(err, freeErr)
		}
		c.say("port %d is busy; %s goes to %d, as .dev/env says", port, what, another)
		port = another
	}
}

// devToken is a token of the owner `dev` with every scope.
func devToken(secret string) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "dev", "tenant": "default", "scope": "upload read delete admin",
		"iat": now.Unix(), "exp": now.AddDate(1, 0, 0).Unix(),
	})
	s, err := t.SignedString([]byte(secret))
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return s, nil
}
