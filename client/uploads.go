package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth/client/wire"
)

// Open begins an upload. The answer's Instant says that nothing is to be sent.
func (c *Client) Open(ctx context.Context, r wire.OpenRequest) (*wire.Upload, error) {
	up, _, err := c.open(ctx, r, NewIdempotencyKey())
	return up, err
}

func (c *Client) open(ctx context.Context, r wire.OpenRequest, key string) (*wire.Upload, time.Duration, error) {
	var up wire.Upload
	var ahead time.Duration
	err := c.do(ctx, call{op: "open", method: http.MethodPost, path: "/v1/uploads", body: r, key: key, ahead: &ahead}, &up)
	if err != nil {
		return nil, 0, err
	}
	return &up, ahead, nil
}

// Upload shows an upload, with its progress.
func (c *Client) Upload(ctx context.Context, id string) (*wire.Upload, error) {
	return get[wire.Upload](ctx, c, "upload", uploadPath(id), nil)
}

// Sign has the parts signed for. A checksum pins the part's bytes.
func (c *Client) Sign(ctx context.Context, id string, parts ...wire.PartToSign) (*wire.SignResponse, error) {
	res, _, err := c.sign(ctx, id, wire.SignRequest{Parts: parts})
	return res, err
}

// SignRange has parts from..to signed for, with no bytes pinned.
func (c *Client) SignRange(ctx context.Context, id string, from, to int) (*wire.SignResponse, error) {
	res, _, err := c.sign(ctx, id, wire.SignRequest{From: from, To: to})
	return res, err
}

func (c *Client) sign(ctx context.Context, id string, r wire.SignRequest) (*wire.SignResponse, time.Duration, error) {
	var res wire.SignResponse
	var ahead time.Duration
	err := c.do(ctx, call{op: "sign", method: http.MethodPost, path: uploadPath(id) + "/parts", body: r, ahead: &ahead}, &res)
	if err != nil {
		return nil, 0, err
	}
	return &res, ahead, nil
}

// Parts is what S3 holds of an upload, and what it lacks.
func (c *Client) Parts(ctx context.Context, id string) (*wire.PartsResponse, error) {
	return get[wire.PartsResponse](ctx, c, "parts", uploadPath(id)+"/parts", nil)
}

// Complete says that every part is sent. The body may be empty.
func (c *Client) Complete(ctx context.Context, id string, r wire.CompleteRequest) (*wire.Upload, error) {
	return c.complete(ctx, id, r, NewIdempotencyKey())
}

func (c *Client) complete(ctx context.Context, id string, r wire.CompleteRequest, key string) (*wire.Upload, error) {
	var up wire.Upload
	err := c.do(ctx, call{op: "complete", method: http.MethodPost, path: uploadPath(id) + "/complete", body: r, key: key}, &up)
	if err != nil {
		return nil, err
	}
	return &up, nil
}

// Commit makes a file of a completed upload whose commit was deferred.
func (c *Client) Commit(ctx context.Context, id string, r wire.CommitRequest) (*wire.File, error) {
	var f wire.File
	err := c.do(ctx, call{op: "commit", method: http.MethodPost, path: uploadPath(id) + "/commit", body: r, key: NewIdempotencyKey()}, &f)
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// Abort gives an upload up; what was sent is removed.
func (c *Client) Abort(ctx context.Context, id string) (*wire.Upload, error) {
	var up wire.Upload
	err := c.do(ctx, call{op: "abort", method: http.MethodDelete, path: uploadPath(id), key: NewIdempotencyKey()}, &up)
	if err != nil {
		return nil, err
	}
	return &up, nil
}

func uploadPath(id string) string { return "/v1/uploads/" + url.PathEscape(id) }

func get[T any](ctx context.Context, c *Client, op, path string, query url.Values) (*T, error) {
	v := new(T)
	if err := c.do(ctx, call{op: op, method: http.MethodGet, path: path, query: query}, v); err != nil {
		return nil, err
	}
	return v, nil
}
