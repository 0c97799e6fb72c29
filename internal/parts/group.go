package parts

import (
	"context"
	"errors"
	"path/filepath"
)

// Shared is what a process needs to use parts that another one runs.
type Shared struct {
	Postgres  string `json:"postgres"`  // URL of a superuser's database
	S3        string `json:"s3"`        // endpoint
	AccessKey string `json:"accessKey"` // root's
	SecretKey string `json:"secretKey"`
	S3Dir     string `json:"s3Dir"`  // for RemoveBucket
	SQS       string `json:"sqs"`    // endpoint
	Bridge    string `json:"bridge"` // base URL of the routes
}

// Volatile is one of each part, for tests.
type Volatile struct {
	Postgres *Postgres
	SQS      *SQS
	Bridge   *Bridge
	S3       *S3
	Shared   Shared
	Dirs     []string
}

// StartVolatile starts one of each part on free ports in temporary folders. They
// end with Stop or with this process, and the folders go with the process.
func StartVolatile(ctx context.Context) (*Volatile, error) {
	memory, err := memoryDir()
	if err != nil {
		return nil, err
	}
	disk, err := TempDir()
	if err != nil {
		return nil, err
	}
	v := &Volatile{Dirs: []string{memory, disk}}
	// PostgreSQL takes the longest and needs none of the others.
	pg := make(chan error, 1)
	go func() {
		var err error
		v.Postgres, err = StartPostgres(ctx, PostgresOptions{Dir: filepath.Join(memory, "postgres"), Volatile: true})
		pg <- err
	}()
	err = v.startQueueAndStore(ctx, disk)
	if err = errors.Join(err, <-pg); err != nil {
		return nil, errors.Join(err, v.Stop())
	}
	v.Shared = Shared{
		Postgres: v.Postgres.DSN("postgres"),
		S3:       v.S3.Endpoint, AccessKey: v.S3.AccessKey, SecretKey: v.S3.SecretKey, S3Dir: filepath.Join(disk, "s3"),
		SQS: v.SQS.Endpoint, Bridge: "http://" + Addr(v.Bridge.Port),
	}
	return v, nil
}

func (v *Volatile) startQueueAndStore(ctx context.Context, dir string) (err error) {
	if v.SQS, err = StartSQS(ctx, SQSOptions{}); err != nil {
		return err
	}
	if v.Bridge, err = StartBridge(BridgeOptions{SQS: v.SQS.Client()}); err != nil {
		return err
	}
	v.S3, err = StartS3(ctx, S3Options{Dir: filepath.Join(dir, "s3"), Webhook: v.Bridge.URL})
	return err
}

// Stop ends them, in the opposite order.
func (v *Volatile) Stop() error {
	return errors.Join(v.S3.Stop(), v.Bridge.Stop(), v.SQS.Stop(), v.Postgres.Stop())
}
