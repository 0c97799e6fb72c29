package main

import (
	"context"
	"fmt"

	"berth/cmd/berthd/config"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// awsConfig is the region and the credentials: those given, else what the AWS chain
// finds (environment, files, web identity, roles).
func awsConfig(ctx context.Context, region, keyID string, secret config.Secret) (aws.Config, error) {
	if keyID != "" && region != "" {
		return aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider(keyID, secret.Reveal(), "")}, nil
	}
	var options []func(*awsconfig.LoadOptions) error
	if region != "" {
		options = append(options, awsconfig.WithRegion(region))
	}
	if keyID != "" {
		options = append(options, awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(keyID, secret.Reveal(), "")))
	}
	c, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("aws: %w", err)
	}
	return c, nil
}

// sqsClient reaches the queue of notifications. Its HTTP client has no time limit of
// its own, since long polls are long: each call is given one.
func sqsClient(ctx context.Context, c *config.Config) (*sqs.Client, error) {
	e := c.Events
	conf, err := awsConfig(ctx, e.Region, e.AccessKeyID, e.SecretAccessKey)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return sqs.NewFromConfig(conf, func(o *sqs.Options) {
		if e.Endpoint != "" {
			o.BaseEndpoint = &e.Endpoint
		}
	}), nil
}
