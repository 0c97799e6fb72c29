package main

import (
	"bytes"
	"fmt"
	"time"

	"berth/cmd/berthd/config"
	"berth/internal/parts"

	"go.yaml.in/yaml/v3"
)

// berthdConfig is what berthd is told of the local cloud. Its loops run every
// second, so that what production does in minutes can be watched in seconds.
func berthdConfig(vars map[string]string, listen, notificationToken, stepURL, stepSecret string) config.Config {
	seconds := func(n int) config.Duration { return config.Duration(time.Duration(n) * time.Second) }
	pathStyle := true
	return config.Config{
		Listen:    listen,
		PublicURL: vars[envURL],
		Log:       config.Log{Level: "info", Format: "json"},
		Database:  config.Database{URL: config.Secret(vars[envDatabase])},
		Auth:      config.Auth{HS256Secret: config.Secret(vars[envJWTSecret])},
		Stores: map[string]config.Store{"main": {
			Endpoint: vars[envS3], Region: vars[envRegion], Bucket: vars[envBucket], PathStyle: &pathStyle,
			AccessKeyID: vars[envAccessKey], SecretAccessKey: config.Secret(vars[envSecretKey]),
			NotificationToken: config.Secret(notificationToken),
		}},
		Events: config.Events{
			QueueURL: vars[envQueueURL], Endpoint: vars[envSQS], Region: vars[envRegion],
			AccessKeyID: "berth", SecretAccessKey: "berth", // kumo takes any
		},
		Worker:   config.Worker{Interval: seconds(1)},
		Webhooks: config.Webhooks{AllowPrivate: true}, // its own step is on loopback
		Collections: map[string]config.Collection{
			"default": {},
			"resume": {
				Extensions: []string{"pdf", "doc", "docx"},
				ContentTypes: []string{
					"application/pdf", "application/msword",
					"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
				},
				MaxSize: 10 << 20, MaxFiles: 5, Dedupe: "reject",
			},
			"instant": {Dedupe: "reuse"},
			"draft":   {Commit: "deferred"},
			// For watching expiry.
			"brief": {Deadline: seconds(5), Grace: seconds(2)},
			"checked": {Steps: []config.Step{{
				Name: "check", Kind: "webhook", URL: stepURL, Secret: config.Secret(stepSecret), Timeout: seconds(10),
			}}},
		},
	}
}

// writeConfig writes the configuration where only we can read it.
func writeConfig(file string, c config.Config) error {
	var b bytes.Buffer
	b.WriteString("# Made by the local cloud at each start: changes are lost.\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c); err != nil {
		return fmt.Errorf("berthd's configuration: %w", err)
	}
	if err := replaceFile(file, b.Bytes()); err != nil {
		return fmt.Errorf("berthd's configuration: %w", err)
	}
	return nil
}

// secrets of the local cloud, kept from start to start.
type secrets struct{ jwt, notification, step string }

func (p place) secrets() (s secrets, err error) {
	for _, one := range []struct {
		name string
		to   *string
	}{{"jwt", &s.jwt}, {"notification", &s.notification}, {"step", &s.step}} {
		if *one.to, err = parts.Secret(p.file("secrets", one.name), 52); err != nil {
			return s, err
		}
	}
	return s, nil
}
