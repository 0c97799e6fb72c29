package objects

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"berth/models"
)

// PresignPost signs a POST policy form for one object of minSize to maxSize bytes, as
// browsers' form uploads want it. The store refuses other keys, types, metadata and
// lengths. A form knows no if-none-match: while it lives, it can write the key again,
// as a new version.
func (s *Store) PresignPost(ctx context.Context, spec models.ObjectSpec, minSize, maxSize int64, digest []byte, expires time.Duration, now time.Time) (models.SignedForm, time.Time, error) {
	const op = "PresignPostObject"
	refuse := func(e *models.ObjectError) (models.SignedForm, time.Time, error) {
		return models.SignedForm{}, time.Time{}, e
	}
	switch {
	case spec.Key == "":
		return refuse(invalid(op, "the key is empty"))
	case minSize < 0 || maxSize < minSize || maxSize > models.MaxSinglePut:
		return refuse(invalid(op, "sizes %d to %d are not within 0 to %d", minSize, maxSize, int64(models.MaxSinglePut)))
	case len(digest) > 0 && len(digest) != spec.Algorithm.Size():
		return refuse(invalid(op, "%d bytes are no digest of %q", len(digest), string(spec.Algorithm)))
	}
	t, err := s.stamp(ctx, op, expires, now)
	if err != nil {
		return models.SignedForm{}, time.Time{}, err
	}
	date := string(t.date[:])
	credential := t.key.access + "/" + t.key.scope
	fields := map[string]string{"X-Amz-Algorithm": sigAlgorithm, "X-Amz-Credential": credential, "X-Amz-Date": date, "key": spec.Key}
	conditions := []any{
		map[string]string{"X-Amz-Algorithm": sigAlgorithm},
		map[string]string{"bucket": s.bucket},
		map[string]string{"X-Amz-Credential": credential},
		map[string]string{"X-Amz-Date": date},
	}
	if t.token != "" {
		fields["X-Amz-Security-Token"] = t.token
		conditions = append(conditions, map[string]string{"X-Amz-Security-Token": t.token})
	}
	conditions = append(conditions, []any{"content-length-range", minSize, maxSize})
	for _, h := range objectHeaders(spec, digest) {
		if h.Name == "content-type" {
			h.Name = "Content-Type" // as browsers' forms have it
		}
		fields[h.Name] = h.Value
		conditions = append(conditions, map[string]string{h.Name: h.Value})
	}
	conditions = append(conditions, map[string]string{"key": spec.Key})
	doc, err := json.Marshal(map[string]any{"conditions": conditions, "expiration": t.until.Format(time.RFC3339)})
	if err != nil {
		return refuse(invalid(op, "%w", err))
	}
	policy := base64.StdEncoding.EncodeToString(doc)
	fields["policy"] = policy

	w := t.key.benches.Get().(*bench)
	defer t.key.benches.Put(w)
	w.mac.Reset()
	w.mac.Write([]byte(policy))
	w.sum = w.mac.Sum(w.sum[:0])
	fields["X-Amz-Signature"] = hex.EncodeToString(w.sum)
	return models.SignedForm{URL: s.signer.form, Fields: fields}, t.until, nil
}
