package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"berth/client"
	"berth/client/wire"
)

type statusCommand struct {
	ID      string `arg:"" help:"A file, fil_…, or an upload, upl_…"`
	History bool   `help:"Show the file's timeline as well."`
}

func (s *statusCommand) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	if strings.HasPrefix(s.ID, "upl_") {
		up, err := c.Upload(e.ctx, s.ID)
		if err != nil {
			return err
		}
		if e.root.JSON {
			e.json(up)
			return nil
		}
		return e.table(uploadRows(up))
	}
	f, err := c.File(e.ctx, s.ID)
	if err != nil {
		return err
	}
	if e.root.JSON {
		e.json(f)
	} else if err := e.table(fileRows(f)); err != nil {
		return err
	}
	if s.History {
		return s.history(e, c)
	}
	return nil
}

func (s *statusCommand) history(e *env, c *client.Client) error {
	for cursor := ""; ; {
		page, err := c.History(e.ctx, s.ID, cursor)
		if err != nil {
			return err
		}
		for _, h := range page.History {
			if e.root.JSON {
				e.json(h)
				continue
			}
			fmt.Fprintf(e.stdout, "%s  %-8s %s → %s  by %s", h.At.Local().Format("2006-01-02 15:04:05.000"), h.What, or(h.From, "·"), h.To, printable(h.Actor))
			if h.Why != "" {
				fmt.Fprintf(e.stdout, ": %s", printable(h.Why))
			}
			fmt.Fprintln(e.stdout)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return nil
		}
		cursor = page.NextCursor
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// table prints names and values, without those that are empty.
func (e *env) table(rows [][2]string) error {
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", r[0], printable(r[1]))
		}
	}
	return w.Flush()
}

func fileRows(f *wire.File) [][2]string {
	return [][2]string{
		{"file", f.ID}, {"name", f.Name}, {"state", f.State}, {"reason", reasonText(f.Reason)},
		{"collection", f.Collection}, {"size", sizeText(f.Size)}, {"type", f.ContentType},
		{"checksum", checksumText(f.Checksum)}, {"version", f.VersionID}, {"metadata", string(f.Metadata)},
		{"created", timeText(&f.CreatedAt)}, {"active since", timeText(f.ActivatedAt)},
	}
}

func uploadRows(u *wire.Upload) [][2]string {
	rows := [][2]string{
		{"upload", u.ID}, {"file", u.FileID}, {"state", u.State}, {"reason", reasonText(u.Reason)},
		{"collection", u.Collection}, {"size", sizeText(u.Size)},
		{"parts", fmt.Sprintf("%d of %s (%s)", u.PartCount, bytesText(u.PartSize), u.Method)},
		{"checksum", checksumText(u.Checksum)}, {"expires", timeText(&u.ExpiresAt)},
	}
	if u.UploadedParts != nil && u.UploadedBytes != nil {
		rows = append(rows, [2]string{"at S3", fmt.Sprintf("%d parts, %s", *u.UploadedParts, bytesText(*u.UploadedBytes))})
	}
	return rows
}

func reasonText(r *wire.Reason) string {
	if r == nil {
		return ""
	}
	return r.Code + ": " + r.Message
}

func sizeText(n int64) string {
	if n < 1024 {
		return bytesText(n)
	}
	return fmt.Sprintf("%s (%d bytes)", bytesText(n), n)
}

func timeText(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}
