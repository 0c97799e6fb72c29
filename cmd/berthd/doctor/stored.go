package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"berth/models"
)

// Stored is how some collections have their objects kept, where it is not as the bucket does.
type Stored struct {
	Collections               []string
	StorageClass, SSEKMSKeyID string
}

func (s Stored) String() string {
	var out []string
	if s.StorageClass != "" {
		out = append(out, "storage class "+s.StorageClass)
	}
	if s.SSEKMSKeyID != "" {
		out = append(out, "key "+s.SSEKMSKeyID)
	}
	return strings.Join(out, ", ")
}

// stored tries what collections ask for beyond the bucket's own: the right to a key, and
// whether what is kept so can be read at once.
func (p *probing) stored(ctx context.Context) {
	const check = "collections' storage"
	d, alg := p.d, p.s.Algorithms[0]
	for _, how := range p.s.Stored {
		fail := func(what string) {
			d.add(check, Failure, fmt.Sprintf("%s, as the collections %s want it (%s)", what, strings.Join(how.Collections, ", "), how),
				"Correct storage_class or sse_kms_key_id of these collections. A key that is not the bucket's must let the roles api and operator kms:GenerateDataKey and kms:Decrypt, events and worker kms:Decrypt. "+
					"A class must answer reads at once: STANDARD_IA, GLACIER_IR, INTELLIGENT_TIERING.",
				`module "service" { role_statements = [… , the key's by role] }`)
		}
		body := []byte("berth doctor " + rand.Text())
		spec := p.spec(alg)
		spec.StorageClass, spec.SSEKMSKeyID = how.StorageClass, how.SSEKMSKeyID
		signed, _, err := p.s.Objects.PresignPut(ctx, spec, int64(len(body)), digest(alg, body), probeExpiry, d.Now())
		if err != nil {
			fail("nothing can be signed: " + short(err))
			continue
		}
		got, err := p.send(ctx, signed, body)
		if err != nil || !got.good() {
			what := got.String()
			if err != nil {
				what = err.Error()
			}
			fail("a right PUT is answered " + what)
			continue
		}
		if err := p.readable(ctx, spec); err != nil {
			fail("what was written cannot be read: " + short(err))
			continue
		}
		d.ok(check, "%s: taken, and read", how)
	}
}

func (p *probing) readable(ctx context.Context, spec models.ObjectSpec) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := p.s.Objects.Head(ctx, spec.Key, "")
	if err != nil || o.VersionID == models.NullVersion {
		return err
	}
	_, err = p.s.Objects.Peek(ctx, spec.Key, o.VersionID, 1)
	return err
}
