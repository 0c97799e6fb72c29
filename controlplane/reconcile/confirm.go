package reconcile

import (
	"context"
	"sync"

	"berth/models"
)

// sideBySide is how many questions are asked of the store at once.
const sideBySide = 8

// confirm looks at suspicions again: at the store first, where the walk did not see it
// as it is now, then at the rows. In this order, because a row is written before its
// object and outlives it: what the store did not have and a row still wants afterwards
// is missing; what a row did not have after the store was seen to hold it is an orphan.
func (p *pass) confirm(ctx context.Context, held []suspicion) ([]models.Finding, error) {
	seen, err := p.look(ctx, held)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(held))
	for i, s := range held {
		if i == 0 || held[i-1].key != s.key {
			keys = append(keys, s.key)
		}
	}
	rows, err := p.Records.KnownAt(ctx, p.Store, keys)
	if err != nil {
		return nil, err
	}
	var out []models.Finding
	for i, s := range held {
		var known *models.KnownKey
		if k, ok := rows[s.key]; ok {
			known = &k
		}
		if f, bad := p.rejudge(known, s, seen[i]); bad {
			out = append(out, f)
			p.report.Found(f)
		}
	}
	return out, nil
}

// sight is what the store said when it was asked about a suspicion.
type sight struct {
	version *models.ObjectVersion // as it is now; nil: not there
	head    bool                  // by a HEAD, which tells what is recorded
}

// rejudge decides, from what is known now.
func (p *pass) rejudge(known *models.KnownKey, s suspicion, now sight) (models.Finding, bool) {
	switch {
	case s.multipart != nil:
		return p.judge.Multipart(known, *s.multipart)
	case s.version == nil: // a row's version was not met
		if known == nil || known.VersionID != s.want || now.version != nil {
			return models.Finding{}, false
		}
		return p.judge.Missing(known)
	case now.version == nil:
		if now.head && known != nil && known.VersionID == s.version.VersionID {
			return p.judge.Missing(known)
		}
		return models.Finding{}, false // gone meanwhile
	}
	f, bad := p.judge.Version(known, *now.version)
	if f.Kind == models.FindCorrupt && !now.head {
		return f, false // the row is newer than the walk: the next run looks
	}
	return f, bad
}

// look asks the store about what the walk cannot be believed in: a recorded version that
// was not met or differs, by a HEAD of it; and, where the walk was along an inventory,
// every version, by a listing of its key.
func (p *pass) look(ctx context.Context, held []suspicion) ([]sight, error) {
	seen := make([]sight, len(held))
	live := p.Inventory == ""
	rows := map[string]models.KnownKey{}
	if len(held) > 0 {
		var keys []string
		for _, s := range held {
			if s.version != nil {
				keys = append(keys, s.key)
			}
		}
		var err error
		if rows, err = p.Records.KnownAt(ctx, p.Store, keys); err != nil {
			return nil, err
		}
	}
	var asks []func(context.Context) error
	for i := 0; i < len(held); i++ {
		s := held[i]
		switch {
		case s.multipart != nil:
		case s.version == nil:
			asks = append(asks, func(ctx context.Context) error { return p.head(ctx, s.key, s.want, &seen[i]) })
		default:
			if k, ok := rows[s.key]; ok && k.VersionID == s.version.VersionID {
				asks = append(asks, func(ctx context.Context) error { return p.head(ctx, s.key, s.version.VersionID, &seen[i]) })
				continue
			}
			if live {
				seen[i].version = s.version
				continue
			}
			from := i // one listing for all of the key's that stand together
			for i+1 < len(held) && held[i+1].key == s.key && held[i+1].version != nil {
				i++
			}
			to := i + 1
			asks = append(asks, func(ctx context.Context) error { return p.list(ctx, held[from:to], seen[from:to]) })
		}
	}
	return seen, together(ctx, asks)
}

func (p *pass) head(ctx context.Context, key, version string, s *sight) error {
	o, err := p.Objects.Head(ctx, key, version)
	s.head = true
	if models.ObjectKind(err) == models.ObjectAbsent {
		return nil
	}
	if err != nil {
		return err
	}
	s.version = &models.ObjectVersion{Key: key, VersionID: version, Size: o.Size, ETag: o.ETag, Modified: o.Modified}
	return nil
}

// list finds those of one key's versions that are there now.
func (p *pass) list(ctx context.Context, held []suspicion, seen []sight) error {
	at := make(map[string]int, len(held))
	for i, s := range held {
		at[s.version.VersionID] = i
	}
	for v, err := range p.Objects.ListVersions(ctx, held[0].key) {
		if err != nil {
			return err
		}
		if v.Key > held[0].key {
			break // a prefix is not a key; the key itself comes first
		}
		if v.Key < held[0].key {
			continue
		}
		if i, ok := at[v.VersionID]; ok {
			seen[i].version = &v
		}
	}
	return nil
}

// together runs all, a few at once, and returns the first error.
func together(ctx context.Context, asks []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan func(context.Context) error)
	for range min(sideBySide, len(asks)) {
		wg.Go(func() {
			for ask := range next {
				if ctx.Err() == nil {
					if err := ask(ctx); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	for _, ask := range asks {
		next <- ask
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
