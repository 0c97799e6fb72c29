package reconcile

import (
	"context"

	"berth/models"
)

// mend does what is to be done about findings, if asked to.
func (p *pass) mend(ctx context.Context, fs []models.Finding) error {
	if !p.Repair {
		return nil
	}
	var remove []models.Finding
	reaped := map[models.ReplicaID]bool{}
	for _, f := range fs {
		switch f.Mend {
		case models.MendNone:
		case models.MendDelete, models.MendAbort:
			if p.removed >= p.Most {
				p.report.Held++
				continue
			}
			p.removed++
			remove = append(remove, f)
		case models.MendForeign:
			if err := p.Records.NoteForeign(ctx, models.ForeignVersion{Store: p.Store, Key: f.Key, VersionID: f.VersionID,
				ReplicaID: f.ReplicaID, FileID: f.FileID, Actor: models.ActorReconcile}, p.utc()); err != nil {
				return err
			}
			fallthrough // noted before, it may have lost its task since
		case models.MendReap:
			if !reaped[f.ReplicaID] {
				if err := p.Records.EnsureReap(ctx, f.ReplicaID, p.utc()); err != nil {
					return err
				}
				reaped[f.ReplicaID] = true
			}
			p.report.Mended(f.Kind)
		}
	}
	return p.remove(ctx, remove)
}

// remove removes versions by their ids and aborts multipart uploads: those that pass the
// reference check, after it is noted that they go, and noting which went.
func (p *pass) remove(ctx context.Context, fs []models.Finding) error {
	if len(fs) == 0 {
		return nil
	}
	places, err := p.Records.Condemn(ctx, p.run, p.Store, fs, p.utc())
	if err != nil {
		return err
	}
	allowed := make(map[int]bool, len(places))
	var refs []models.VersionRef
	var versions, gone, spared []models.Finding
	for _, i := range places {
		allowed[i] = true
		f := fs[i]
		if f.Mend == models.MendDelete {
			versions = append(versions, f)
			refs = append(refs, models.VersionRef{Key: f.Key, VersionID: f.VersionID})
			continue
		}
		if err := p.Objects.AbortMultipart(ctx, f.Key, f.S3UploadID); err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.refuse(f, short(err))
			continue
		}
		gone = append(gone, f)
	}
	for i, f := range fs {
		if !allowed[i] {
			p.refuse(f, "a row came to have the key meanwhile")
		}
	}
	results, failure := p.Objects.DeleteVersions(ctx, refs)
	for i, f := range versions {
		switch {
		case i >= len(results):
			spared = append(spared, f) // not answered: it may be gone, the next run sees
		case results[i].Err != nil:
			spared = append(spared, f)
			p.refuse(f, string(results[i].Err.Kind)+": "+results[i].Err.Code)
		default:
			gone = append(gone, f)
		}
	}
	if len(gone) > 0 {
		if err := p.Records.Removed(ctx, p.run, p.Store, gone, p.utc()); err != nil {
			return err
		}
		for _, f := range gone {
			p.report.Mended(f.Kind)
		}
	}
	if len(spared) > 0 && failure == nil {
		if err := p.Records.Spare(ctx, p.run, p.Store, spared, p.utc()); err != nil {
			return err
		}
	}
	return failure
}

func (p *pass) refuse(f models.Finding, why string) {
	p.report.Refused(f, why)
	p.Log.Warn("reconcile: not mended", "kind", f.Kind, "store", p.Store, "key", f.Key, "version", f.VersionID, "why", why)
}

// counters compares the counters with the rows and, if asked to, counts again.
func (p *pass) counters(ctx context.Context) error {
	var next models.Drift
	limited := p.limited()
	for more := true; more; {
		var found []models.Drift
		var err error
		if found, next, more, err = p.Records.Drift(ctx, p.Store, limited, next, driftRows); err != nil {
			return err
		}
		for _, d := range found {
			c := p.report.Count(models.FindCounterDrift)
			c.Found++
			c.Bytes += max(d.Bytes-d.RealBytes, d.RealBytes-d.Bytes)
			if len(p.report.Drift) < models.MaxExamples {
				p.report.Drift = append(p.report.Drift, d)
			}
			if !p.Repair {
				continue
			}
			p.Log.Warn("reconcile: a counter is not what the rows say, and is counted again", "counter", d.Counter, "tenant", d.Tenant,
				"owner", d.Owner, "collection", d.Collection, "store", d.Store, "count", d.Count, "real_count", d.RealCount,
				"bytes", d.Bytes, "real_bytes", d.RealBytes)
			if _, _, err := p.Records.MendDrift(ctx, d, limited); err != nil {
				return err
			}
			p.report.Mended(models.FindCounterDrift)
		}
	}
	return nil
}

// driftRows is about how many rows are counted in one statement.
const driftRows = 50_000
