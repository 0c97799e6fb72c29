package store

import (
	"context"
	"slices"

	"berth/models"
)

// quotaDrift compares quotas with the files that are counted in them, or should be since
// their collection has a limit by now, of the owners after one and up to another. It is one
// statement, hence one snapshot; and since every transaction that changes the one changes
// the other, a difference in it is drift and never a change in flight.
const quotaDrift = `SELECT 'quotas' AS counter, COALESCE(q.tenant, f.tenant) AS tenant, COALESCE(q.owner, f.owner) AS owner,
		COALESCE(q.collection, f.collection) AS collection, COALESCE(q.files, 0) AS count, COALESCE(q.bytes, 0) AS bytes,
		COALESCE(q.open, 0) AS open, COALESCE(f.n, 0) AS real_count, COALESCE(f.b, 0) AS real_bytes, COALESCE(f.o, 0) AS real_open
	FROM (SELECT * FROM quotas WHERE ` + ownersBetween + `) q FULL JOIN (SELECT tenant, owner, collection, count(*) AS n, sum(size)::bigint AS b,
			count(*) FILTER (WHERE state = 'preparing') AS o FROM files WHERE ` + counted + ` AND ` + ownersBetween + ` GROUP BY 1, 2, 3) f
	  ON f.tenant = q.tenant AND f.owner = q.owner AND f.collection = q.collection
	WHERE (COALESCE(q.files, 0), COALESCE(q.bytes, 0), COALESCE(q.open, 0)) IS DISTINCT FROM (COALESCE(f.n, 0), COALESCE(f.b, 0), COALESCE(f.o, 0))
	ORDER BY 2, 3, 4`

// counted are the files that quotas are about: those that are counted, and the living ones
// of the collections in @limited, which are to be.
const counted = `(guarded OR (collection = ANY(CAST(@limited AS text[])) AND ` + owned + `))`

// owned are the files that are to be counted where there is a limit: what lives, and is no
// step's doing.
const owned = livingFile + ` AND parent_id IS NULL`

const livingFile = `state IN ('preparing', 'processing', 'active', 'blocked')`

const ownersBetween = `(tenant, owner) > (CAST(@tenant AS text), CAST(@owner AS text)) AND (tenant, owner) <= (CAST(@to_tenant AS text), CAST(@to_owner AS text))`

// usageDrift compares what a store's slots add up to with the replicas, as quotaDrift.
const usageDrift = `SELECT 'store_usage' AS counter, CAST(@store AS text) AS store, u.n AS count, u.b AS bytes, r.n AS real_count, r.b AS real_bytes
	FROM (SELECT COALESCE(sum(replicas), 0)::bigint AS n, COALESCE(sum(bytes), 0)::bigint AS b FROM store_usage_slots WHERE store = @store) u,
	     (SELECT count(*) AS n, COALESCE(sum(size), 0)::bigint AS b FROM replicas WHERE store = @store AND state <> 'deleted') r
	WHERE (u.n, u.b) <> (r.n, r.b)`

type driftRow struct {
	Counter, Tenant, Owner, Collection, Store string
	Count, Bytes, RealCount, RealBytes        int64
	Open, RealOpen                            int64 // sessions, of quotas only
}

func (r *driftRow) model() models.Drift {
	return models.Drift{Counter: r.Counter, Tenant: models.Tenant(r.Tenant), Owner: models.Owner(r.Owner), Collection: r.Collection,
		Store: models.StoreName(r.Store), Count: r.Count, Bytes: r.Bytes, RealCount: r.RealCount, RealBytes: r.RealBytes, Open: r.Open, RealOpen: r.RealOpen}
}

// Drift finds counters that are not what the rows say: the store's usage at first, and
// quotas, a page of owners at a time. A page is made of about so many rows, all of an
// owner's in the same, so that a pass over all pages reads each row a few times, however
// many pages there are. next is where the next page begins; more is false after the last.
// limited are the collections that have limits now: of those all counts that lives, also
// what was opened when they had none.
func (s *Store) Drift(ctx context.Context, store models.StoreName, limited []string, after models.Drift, rows int) (found []models.Drift, next models.Drift, more bool, err error) {
	var drifts []driftRow
	if after == (models.Drift{}) {
		if _, err := s.alone(ctx).read(&drifts, usageDrift, args{"store": store}); err != nil {
			return nil, next, false, wrap("drift of store usage", err)
		}
	}
	var to struct{ Tenant, Owner string }
	a := args{"tenant": after.Tenant, "owner": after.Owner, "rows": rows}
	n, err := s.alone(ctx).read(&to, `SELECT tenant, owner FROM (SELECT tenant, owner FROM (
			(SELECT tenant, owner FROM quotas WHERE (tenant, owner) > (CAST(@tenant AS text), CAST(@owner AS text)) ORDER BY 1, 2 LIMIT @rows)
			UNION ALL
			(SELECT tenant, owner FROM files WHERE (tenant, owner) > (CAST(@tenant AS text), CAST(@owner AS text)) ORDER BY 1, 2 LIMIT @rows)) x
		ORDER BY 1, 2 LIMIT @rows) page ORDER BY 1 DESC, 2 DESC LIMIT 1`, a)
	if err != nil {
		return nil, next, false, wrap("page of owners", err)
	}
	if n > 0 {
		next, more = models.Drift{Tenant: models.Tenant(to.Tenant), Owner: models.Owner(to.Owner)}, true
		var quotas []driftRow
		if _, err := s.alone(ctx).read(&quotas, quotaDrift,
			args{"tenant": after.Tenant, "owner": after.Owner, "to_tenant": to.Tenant, "to_owner": to.Owner, "limited": textArray(limited)}); err != nil {
			return nil, next, false, wrap("drift of quotas", err)
		}
		drifts = append(drifts, quotas...)
	}
	found = make([]models.Drift, len(drifts))
	for i := range drifts {
		found[i] = drifts[i].model()
	}
	return found, next, more, nil
}

// MendDrift counts one counter again, in one transaction, and returns it as it was found
// there; ok is false when it was right by then.
func (s *Store) MendDrift(ctx context.Context, d models.Drift, limited []string) (found models.Drift, ok bool, err error) {
	err = s.within(ctx, "mend "+d.Counter, func(t tx) error {
		if d.Counter == "store_usage" {
			found, ok, err = t.mendUsage(d.Store)
			return err
		}
		// The owner guard first: nobody changes what the owner has while it is counted.
		if err := t.guardOwner(models.Upload{Tenant: d.Tenant, Owner: d.Owner, Collection: d.Collection}); err != nil {
			return err
		}
		a := args{"tenant": d.Tenant, "owner": d.Owner, "collection": d.Collection}
		if slices.Contains(limited, d.Collection) {
			if _, err := t.adopt(a); err != nil {
				return err
			}
		}
		found, ok, err = t.countAgain(a)
		return err
	})
	return found, ok, err
}

// adopt has the owner's living files counted that were opened when the collection had no
// limit, and returns how many. They are in quotas only after countAgain. The caller holds
// the owner guard.
//
// Whoever ends such a file meanwhile did not know of the guard and took the file first. Two
// of those can meet crosswise; the database ends one of them, and it begins again.
func (t tx) adopt(owner args) (int64, error) {
	return t.exec(`UPDATE files SET guarded = true WHERE tenant = @tenant AND owner = @owner AND collection = @collection AND NOT guarded AND `+owned, owner)
}

// keepAdopted counts once more what a refusal undid with the rest of its transaction: the
// owners that are beyond a first limit are those who are refused, and each of their opens
// would begin anew. Where nothing was adopted it leaves nothing.
func (s *Store) keepAdopted(ctx context.Context, c *models.Collection, u models.Upload) error {
	if !c.Guarded() {
		return nil
	}
	var row struct{ Lost bool }
	if _, err := s.alone(ctx).read(&row, `SELECT NOT EXISTS (SELECT 1 FROM quotas WHERE tenant = @tenant AND owner = @owner AND collection = @collection)
			AND EXISTS (SELECT 1 FROM files WHERE tenant = @tenant AND owner = @owner AND collection = @collection AND NOT guarded AND `+owned+`) AS lost`,
		args{"tenant": u.Tenant, "owner": u.Owner, "collection": u.Collection}); err != nil || !row.Lost {
		return wrap("owner's row", err)
	}
	return s.within(ctx, "guard owner", func(t tx) error { return t.guardOwner(u) })
}

// countAgain sets an owner's row to what the files say, and returns it as it was; ok is
// false when it was right. The caller holds the owner guard.
func (t tx) countAgain(owner args) (found models.Drift, ok bool, err error) {
	var row driftRow
	if _, err := t.read(&row, `SELECT 'quotas' AS counter, q.tenant, q.owner, q.collection, q.files AS count, q.bytes, q.open,
			COALESCE(f.n, 0) AS real_count, COALESCE(f.b, 0) AS real_bytes, COALESCE(f.o, 0) AS real_open
		FROM quotas q, (SELECT count(*) AS n, sum(size)::bigint AS b, count(*) FILTER (WHERE state = 'preparing') AS o FROM files
			WHERE guarded AND tenant = @tenant AND owner = @owner AND collection = @collection) f
		WHERE q.tenant = @tenant AND q.owner = @owner AND q.collection = @collection`, owner); err != nil {
		return found, false, err
	}
	found = row.model()
	if ok = found.Count != found.RealCount || found.Bytes != found.RealBytes || found.Open != found.RealOpen; !ok {
		return found, false, nil
	}
	return found, true, t.must(`UPDATE quotas SET files = @files, bytes = @bytes, open = @open WHERE tenant = @tenant AND owner = @owner AND collection = @collection`,
		args{"tenant": found.Tenant, "owner": found.Owner, "collection": found.Collection,
			"files": found.RealCount, "bytes": found.RealBytes, "open": found.RealOpen}, "quota counted again")
}

// correctionSlot is the slot of store_usage_slots that takes corrections. No backend
// counts in it, so that a correction waits for nobody and nobody for it.
const correctionSlot = 32

// mendUsage adds what is missing, found in one snapshot. Whatever changes meanwhile
// changes rows and slots alike, so the difference stays what it is, and nobody need be
// locked out. Two corrections at once would both add it: they take turns.
func (t tx) mendUsage(store models.StoreName) (found models.Drift, ok bool, err error) {
	if _, err := t.exec(`SELECT pg_advisory_xact_lock(hashtext('berth store usage'), hashtext(@store))`, args{"store": store}); err != nil {
		return found, false, err
	}
	var row driftRow
	n, err := t.read(&row, usageDrift, args{"store": store})
	if err != nil || n == 0 {
		return found, false, err
	}
	found = row.model()
	return found, true, t.must(`INSERT INTO store_usage_slots AS u (store, slot, replicas, bytes) VALUES (@store, @slot, @n, @b)
		ON CONFLICT (store, slot) DO UPDATE SET replicas = u.replicas + EXCLUDED.replicas, bytes = u.bytes + EXCLUDED.bytes`,
		args{"store": store, "slot": correctionSlot, "n": found.RealCount - found.Count, "b": found.RealBytes - found.Bytes}, "usage counted again")
}
