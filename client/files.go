package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/client/wire"
)

// ListOptions narrow a list of files; an empty field does not.
type ListOptions struct {
	Collection string
	State      string
	PageSize   int // files a request; 0: the server's
}

// Files goes through the caller's files, page by page. It ends at the first error.
func (c *Client) Files(ctx context.Context, o ListOptions) iter.Seq2[wire.File, error] {
	return func(yield func(wire.File, error) bool) {
		cursor := ""
		for {
			page, err := c.FilesPage(ctx, o, cursor)
			if err != nil {
				yield(wire.File{}, err)
				return
			}
			for _, f := range page.Files {
				if !yield(f, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == cursor {
				yield(wire.File{}, errors.New("files: the server's cursor does not move"))
				return
			}
			cursor = page.NextCursor
		}
	}
}

// FilesPage is one page of the list; cursor is the last page's NextCursor.
func (c *Client) FilesPage(ctx context.Context, o ListOptions, cursor string) (*wire.FileList, error) {
	q := url.Values{}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	set("collection", o.Collection)
	set("state", o.State)
	set("cursor", cursor)
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	return get[wire.FileList](ctx, c, "files", "/v1/files", q)
}

// File shows a file.
func (c *Client) File(ctx context.Context, id string) (*wire.File, error) {
	return get[wire.File](ctx, c, "file", filePath(id), nil)
}

// History is a page of a file's timeline; cursor is "" or the last page's NextCursor.
func (c *Client) History(ctx context.Context, id, cursor string) (*wire.History, error) {
	q := url.Values{}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return get[wire.History](ctx, c, "history", filePath(id)+"/history", q)
}

// ContentURL is a presigned GET of the file's bytes. The URL is a secret.
func (c *Client) ContentURL(ctx context.Context, id string) (*wire.ContentURL, error) {
	u, _, err := c.contentURL(ctx, id)
	return u, err
}

func (c *Client) contentURL(ctx context.Context, id string) (*wire.ContentURL, time.Duration, error) {
	var u wire.ContentURL
	var ahead time.Duration
	err := c.do(ctx, call{op: "read", method: http.MethodGet, path: filePath(id) + "/url", ahead: &ahead}, &u)
	if err != nil {
		return nil, 0, err
	}
	return &u, ahead, nil
}

// Patch renames a file or replaces its metadata.
func (c *Client) Patch(ctx context.Context, id string, r wire.PatchRequest) (*wire.File, error) {
	var f wire.File
	if err := c.do(ctx, call{op: "patch", method: http.MethodPatch, path: filePath(id), body: r, key: NewIdempotencyKey()}, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// Delete makes a file unreadable at once; its bytes are removed soon after.
func (c *Client) Delete(ctx context.Context, id string) (*wire.File, error) {
	var f wire.File
	if err := c.do(ctx, call{op: "delete", method: http.MethodDelete, path: filePath(id), key: NewIdempotencyKey()}, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

func filePath(id string) string { return "/v1/files/" + url.PathEscape(id) }

// Import makes a file of an object that a store holds already. It is for admins.
func (c *Client) Import(ctx context.Context, r wire.ImportRequest) (*wire.File, error) {
	var f wire.File
	if err := c.do(ctx, call{op: "import", method: http.MethodPost, path: "/v1/imports", body: r, key: NewIdempotencyKey()}, &f); err != nil {
		return nil, err
	}
	return &f, nil
}
