package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"berth/internal/parts"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"
)

const (
	bucket   = "berth"
	queue    = "berth-events"
	database = "berth"
)

// cloud is the local cloud as it runs in the supervisor.
type cloud struct {
	place place
	say   func(string, ...any) // progress, for people
	last  map[string]string    // what .dev/env holds from the last time
	vars  map[string]string    // what it is to hold

	postgres *parts.Postgres
	sqs      *parts.SQS
	bridge   *parts.Bridge
	s3       *parts.S3
	steps    *http.Server
	stepURL  string
	berthd   *parts.Child
}

// start starts everything and returns when berthd answers. What has been
// started is stopped by stop, also after an error.
func (c *cloud) start(ctx context.Context) error {
	var err error
	if c.last, err = readEnv(c.place.env()); err != nil {
		return err
	}
	secret, err := c.place.secrets()
	if err != nil {
		return err
	}
	var queueURL string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startPostgres(gctx) })
	g.Go(func() (err error) {
		queueURL, err = c.startStore(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if err := c.startSteps(secret.step); err != nil {
		return err
	}
	token, err := devToken(secret.jwt)
	if err != nil {
		return err
	}
	c.vars = map[string]string{
		envToken: token, envJWTSecret: secret.jwt,
		envDatabase: c.postgres.DSN(database),
		envS3:       c.s3.Endpoint, envBucket: bucket, envAccessKey: c.s3.AccessKey, envSecretKey: c.s3.SecretKey, envRegion: parts.Region,
		envSQS: c.sqs.Endpoint, envQueueURL: queueURL,
	}
	return c.onPort("the API", envURL, portAPI, func(port int) error {
		if err := parts.CheckPort("berthd", port); err != nil {
			return err
		}
		c.vars[envURL] = "http://" + parts.Addr(port)
		conf := berthdConfig(c.vars, parts.Addr(port), secret.notification, c.stepURL, secret.step)
		if err := writeConfig(c.place.config(), conf); err != nil {
			return err
		}
		if err := c.startBerthd(ctx); err != nil {
			return parts.AsPortBusy("berthd", port, err)
		}
		if err := writeEnv(c.place.env(), c.vars); err != nil {
			return fmt.Errorf("env: %w", err)
		}
		return nil
	})
}

func (c *cloud) startPostgres(ctx context.Context) error {
	err := c.onPort("PostgreSQL", envDatabase, portPostgres, func(port int) (err error) {
		c.postgres, err = parts.StartPostgres(ctx, parts.PostgresOptions{Dir: c.place.postgres(), Port: port, Log: c.place.log("postgres")})
		return err
	})
	if err != nil {
		return err
	}
	if c.postgres.Moved {
		c.say("PostgreSQL's user cannot reach %s; its cluster is in %s", c.place.postgres(), c.postgres.Dir)
	}
	if err := c.postgres.EnsureDatabase(ctx, database); err != nil {
		return err
	}
	c.say("PostgreSQL answers on port %d", c.postgres.Port)
	return nil
}

// startStore starts SQS, then the bridge into it, then S3, which wants the
// bridge to listen.
func (c *cloud) startStore(ctx context.Context) (queueURL string, err error) {
	err = c.onPort("SQS", envSQS, portSQS, func(port int) (err error) {
		c.sqs, err = parts.StartSQS(ctx, parts.SQSOptions{Port: port})
		return err
	})
	if err != nil {
		return "", err
	}
	client := c.sqs.Client()
	q, err := parts.EnsureQueue(ctx, client, c.sqs.Endpoint, queue, parts.QueueOptions{})
	if err != nil {
		return "", err
	}
	// The bridge needs no leave. S3 itself would, and berthd doctor looks for it.
	policy := `{"Statement":[{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"sqs:SendMessage","Resource":"*",` +
		`"Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::` + bucket + `"}}}]}`
	if _, err := client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.URL, Attributes: map[string]string{"Policy": policy}}); err != nil {
		return "", fmt.Errorf("queue %s: policy: %w", queue, err)
	}
	c.say("SQS (kumo) answers on port %d", c.sqs.Port)
	if c.bridge, err = parts.StartBridge(parts.BridgeOptions{SQS: client, Queue: q.URL}); err != nil {
		return "", err
	}
	err = c.onPort("S3", envS3, portS3, func(port int) (err error) {
		c.s3, err = parts.StartS3(ctx, parts.S3Options{Dir: c.place.s3(), Port: port, Log: c.place.log("versitygw"), Webhook: c.bridge.URL})
		return err
	})
	if err != nil {
		return "", err
	}
	if err := c.s3.EnsureBucket(ctx, bucket); err != nil {
		return "", err
	}
	c.say("S3 (versitygw) answers on port %d", c.s3.Port)
	return q.URL, nil
}

func (c *cloud) startSteps(stepSecret string) error {
	l, err := net.Listen("tcp", parts.Addr(0))
	if err != nil {
		return fmt.Errorf("steps: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /check", checkHandler(stepSecret))
	c.steps = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	c.stepURL = "http://" + l.Addr().String() + "/check"
	go func() { _ = c.steps.Serve(l) }()
	return nil
}

func (c *cloud) startBerthd(ctx context.Context) error {
	path, err := c.place.bin("berthd")
	if err != nil {
		return err
	}
	command := parts.Command{
		Part: "berthd", Path: path, Dir: c.place.root, Env: plainEnv(), Log: c.place.log("berthd"),
		Stop: syscall.SIGTERM, DeathSignal: syscall.SIGKILL,
	}
	migrate := command
	migrate.Part, migrate.Args = "berthd migrate", []string{"migrate", "--config", c.place.config()}
	child, err := parts.Start(migrate)
	if err != nil {
		return err
	}
	if err := child.Wait(ctx); err != nil {
		return err
	}
	command.Args = []string{"serve", "--config", c.place.config()}
	if child, err = parts.Start(command); err != nil {
		return err
	}
	if err := child.Await(ctx, func(ctx context.Context) error { return ready(ctx, c.vars[envURL]) }); err != nil {
		return errors.Join(err, child.Stop(5*time.Second))
	}
	c.berthd = child
	c.say("berthd answers at %s", c.vars[envURL])
	return nil
}

// ready asks berthd whether it is.
func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", resp.StatusCode)
	}
	return nil
}

// plainEnv is the environment without what would win over berthd's
// configuration, such as the .dev/env of another checkout.
func plainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BERTH_") && !strings.HasPrefix(kv, "AWS_") && !strings.HasPrefix(kv, "PG") {
			env = append(env, kv)
		}
	}
	return env
}

// wait returns when ctx ends, with nil, or when a part does, with what it said.
func (c *cloud) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.berthd.Done():
		return c.berthd.Err()
	case <-c.s3.Child().Done():
		return c.s3.Child().Err()
	case <-c.postgres.Child().Done():
		return c.postgres.Child().Err()
	}
}

// stop ends everything, in the opposite order.
func (c *cloud) stop() error {
	err := c.berthd.Stop(20 * time.Second)
	if c.steps != nil {
		err = errors.Join(err, c.steps.Close())
	}
	return errors.Join(err, c.s3.Stop(), c.bridge.Stop(), c.sqs.Stop(), c.postgres.Stop())
}
