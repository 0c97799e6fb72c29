package httpapi

import (
	"encoding/json"
	"time"

	"berth/client/wire"
	"berth/controlplane"
	"berth/models"
)

func checksumOf(c *wire.Checksum) (*models.Checksum, error) {
	if c == nil {
		return nil, nil
	}
	if c.Declared != nil {
		return nil, invalid("checksum.declared", "is in answers only")
	}
	return &models.Checksum{
		Algorithm: models.Algorithm(c.Algorithm), Type: models.ChecksumType(c.Type), Value: c.Value,
	}, nil
}

// present is raw JSON, nil where it is null.
func present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func wireUpload(v controlplane.UploadView) wire.Upload {
	u := v.Upload
	out := wire.Upload{
		ID: string(u.ID), FileID: string(u.FileID), Collection: u.Collection, State: string(u.State),
		Method: string(u.Method), Size: u.Size, PartSize: u.PartSize, PartCount: u.PartCount,
		Checksum:  wireChecksum(u.Checksum, !u.Checksum.IsZero()),
		ExpiresAt: u.ExpiresAt.UTC(), Reason: wireReason(u.ReasonCode, u.Reason),
		Instant: v.Instant, Resumed: v.Resumed,
	}
	if v.File != nil {
		f := wireFile(*v.File)
		out.File = &f
	}
	if !u.Attested.IsZero() {
		out.Checksum = wireChecksum(u.Attested, !u.Checksum.IsZero() || (v.File != nil && v.File.Declared))
	}
	if v.Progress != nil {
		out.UploadedParts, out.UploadedBytes = &v.Progress.Parts, &v.Progress.Bytes
	}
	if len(v.Parts) > 0 {
		out.Parts = make([]wire.SignedPart, len(v.Parts))
		for i, p := range v.Parts {
			out.Parts[i] = wireSigned(p)
		}
		out.PartsExpireAt = timeOrNil(v.PartsExpireAt)
	}
	return out
}

func wireSigned(p models.SignedPart) wire.SignedPart {
	out := wire.SignedPart{Number: p.Number, Size: p.Size, Method: p.Method, URL: p.URL, Headers: make(map[string]string, len(p.Headers))}
	for _, h := range p.Headers {
		out.Headers[h.Name] = h.Value
	}
	return out
}

func wireChecksum(c models.Checksum, declared bool) wire.Checksum {
	out := wire.Checksum{Algorithm: string(c.Algorithm), Type: string(c.Type), Value: c.Value}
	if c.Value != "" {
		out.Declared = &declared
	}
	return out
}

func wireReason(code models.Code, message string) *wire.Reason {
	if code == "" && message == "" {
		return nil
	}
	return &wire.Reason{Code: string(code), Message: message}
}

func wireFile(f models.File) wire.File {
	out := wire.File{
		ID: string(f.ID), Collection: f.Collection, Name: f.Name, Size: f.Size, ContentType: f.ContentType,
		Checksum: wireChecksum(f.Checksum, f.Declared), PartSize: f.PartSize, State: string(f.State), Parent: string(f.Parent),
		Metadata: f.Metadata, VersionID: f.VersionID, CreatedAt: f.CreatedAt.UTC(),
		ActivatedAt: timeOrNil(f.ActivatedAt), Reason: wireReason(f.ReasonCode, f.Reason),
	}
	if len(out.Metadata) == 0 {
		out.Metadata = json.RawMessage("{}")
	}
	return out
}

func wireContent(r controlplane.ReadURL) wire.ContentURL {
	return wire.ContentURL{
		URL: r.URL, Method: "GET", ExpiresAt: r.ExpiresAt.UTC(), Size: r.File.Size,
		Checksum: wireChecksum(r.File.Checksum, r.File.Declared), PartSize: r.PartSize, VersionID: r.File.VersionID,
	}
}

func wireHistory(p controlplane.HistoryPage) wire.History {
	out := wire.History{History: make([]wire.HistoryEntry, len(p.Entries)), NextCursor: p.NextCursor}
	for i, e := range p.Entries {
		out.History[i] = wire.HistoryEntry{
			At: e.At.UTC(), What: e.What, ID: e.ID, From: e.From, To: e.To, Actor: e.Actor, Why: e.Why, VersionID: e.VersionID,
		}
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
