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

// ports are those of the parts that others talk to.
type ports struct{ api, postgres, s3, sqs int }

// choosePorts takes those of the last time, from .dev/env, and another one for
// each that somebody else is on by now, which it says.
func choosePorts(last map[string]string, say func(string, ...any)) (ports, error) {
	var p ports
	for _, c := range []struct {
		what, variable string
		fallback       int
		port           *int
	}{
		{"the API", envURL, 8080, &p.api},
		{"PostgreSQL", envDatabase, 15432, &p.postgres},
		{"S3", envS3, 15433, &p.s3},
		{"SQS", envSQS, 15434, &p.sqs},
	} {
		*c.port = c.fallback
		if u, err := url.Parse(last[c.variable]); err == nil {
			if n, err := strconv.Atoi(u.Port()); err == nil && n > 0 {
				*c.port = n
			}
		}
		busy := parts.CheckPort(c.what, *c.port)
		if busy == nil {
			continue
		}
		another, err := parts.FreePort()
		if err != nil {
			return p, err
		}
		say("port %d is busy; %s goes to %d, as .dev/env says", *c.port, c.what, another)
		*c.port = another
	}
	return p, nil
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
