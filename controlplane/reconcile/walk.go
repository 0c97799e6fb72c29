package reconcile

import (
	"iter"

	"berth/models"
)

// suspicion is something that did not agree when it was walked past: a version, a
// multipart upload, or (neither) a row whose version was not met. Want is the version
// that the row had then.
type suspicion struct {
	key       string
	version   *models.ObjectVersion
	multipart *models.OpenMultipart
	want      string
}

// walk goes through the three streams side by side, key by key. It holds one entry of
// each. Order is a matter of speed only: what comes out of order is suspected, and found
// in place when it is looked at again.
func (p *pass) walk(rows iter.Seq2[models.KnownKey, error], versions iter.Seq2[models.ObjectVersion, error],
	multiparts iter.Seq2[models.OpenMultipart, error], suspect func(suspicion) error) error {
	r, v, m := pull(rows), pull(versions), pull(multiparts)
	defer r.stop()
	defer v.stop()
	defer m.stop()
	last := ""
	for {
		if err := firstError(r.err, v.err, m.err); err != nil {
			return err
		}
		key, any := lowest(r.ok, r.at.Key, v.ok, v.at.Key, m.ok, m.at.Key)
		if !any {
			return nil
		}
		if key < last {
			p.report.Disordered++
		}
		last = key
		var known *models.KnownKey
		if r.ok && r.at.Key == key {
			k := r.at
			known = &k
			p.report.Rows++
			r.next()
		}
		met := false
		for v.ok && v.at.Key == key {
			x := v.at
			p.report.Versions++
			p.report.Bytes += x.Size
			met = met || known != nil && x.VersionID == known.VersionID && !x.Marker
			if _, bad := p.judge.Version(known, x); bad {
				if err := suspect(suspicion{key: key, version: &x}); err != nil {
					return err
				}
			}
			v.next()
		}
		for m.ok && m.at.Key == key {
			x := m.at
			p.report.Multiparts++
			if _, bad := p.judge.Multipart(known, x); bad {
				if err := suspect(suspicion{key: key, multipart: &x}); err != nil {
					return err
				}
			}
			m.next()
		}
		if known != nil && !met && p.expected(known) {
			if err := suspect(suspicion{key: key, want: known.VersionID}); err != nil {
				return err
			}
		}
	}
}

// expected tells whether a row's version should have been met. An inventory cannot have
// what was written after it was made.
func (p *pass) expected(k *models.KnownKey) bool {
	if _, bad := p.judge.Missing(k); !bad {
		return false
	}
	return p.report.InventoryAt.IsZero() || k.UpdatedAt.Before(p.report.InventoryAt)
}

// stream is a sequence with its next entry in hand.
type stream[T any] struct {
	at   T
	ok   bool
	err  error
	pull func() (T, error, bool)
	stop func()
}

func pull[T any](seq iter.Seq2[T, error]) *stream[T] {
	s := &stream[T]{}
	s.pull, s.stop = iter.Pull2(seq)
	s.next()
	return s
}

func (s *stream[T]) next() {
	s.at, s.err, s.ok = s.pull()
	s.ok = s.ok && s.err == nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lowest is the least key in hand.
func lowest(aOK bool, a string, bOK bool, b string, cOK bool, c string) (key string, any bool) {
	for _, x := range []struct {
		ok  bool
		key string
	}{{aOK, a}, {bOK, b}, {cOK, c}} {
		if x.ok && (!any || x.key < key) {
			key, any = x.key, true
		}
	}
	return key, any
}
