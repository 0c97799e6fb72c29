package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/client"
	"berth/client/wire"
	"berth/internal/testkit"
	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// An object that was there before Berth becomes a file by the Go client, is read, and goes
// with its file.
func TestImportIsReadAndDeleted(t *testing.T) {
	t.Parallel()
	c := realConfig(t)
	c.Worker.Interval = 1e9
	p := start(t, c)
	st := c.Stores["main"]
	bucket := testkit.S3Info{Endpoint: st.Endpoint, Region: st.Region, Bucket: st.Bucket, AccessKey: st.AccessKeyID, SecretKey: st.SecretAccessKey.Reveal()}
	s3c := bucket.Client()
	key := st.Prefix + "archive/2019/report.txt"
	if _, err := s3c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &st.Bucket, Key: &key, Body: strings.NewReader("hello")}); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(p.url, token(t, "--scope", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.CloseIdleConnections()
	f, err := admin.Import(t.Context(), wire.ImportRequest{Key: key, Owner: "bob", Collection: "default", Name: "report.txt", Size: aws.Int64(5)})
	if err != nil || f.State != "active" || f.VersionID == "" {
		t.Fatalf("%+v, %v", f, err)
	}
	var refusal *client.Error
	if _, err := admin.Import(t.Context(), wire.ImportRequest{Key: key + "x", Owner: "bob", Collection: "default", Name: "n"}); !errors.As(err, &refusal) || refusal.Code != models.CodeNotFound {
		t.Errorf("of nothing: %v", err)
	}
	bob := token(t, "--owner", "bob")
	var u wire.ContentURL
	if code := call(t, http.MethodGet, p.url+"/v1/files/"+f.ID+"/url", bob, nil, &u); code != http.StatusOK {
		t.Fatalf("url: %d", code)
	}
	resp, err := http.Get(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength != 5 {
		t.Errorf("reading: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
	call(t, http.MethodDelete, p.url+"/v1/files/"+f.ID, bob, nil, nil)
	testkit.Eventually(t, 30*time.Second, func() error {
		out, err := s3c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &st.Bucket, Prefix: &key})
		if err == nil && len(out.Versions)+len(out.DeleteMarkers) > 0 {
			err = errors.New("the object is still there")
		}
		return err
	})
}
