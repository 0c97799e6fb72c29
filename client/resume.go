package client

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"berth/models"
)

// goOn takes up what an earlier run left. found is false if there is nothing, or
// nothing that could be continued.
func (j *job) goOn(ctx context.Context) (todo []int, found bool, err error) {
	old, err := loadState(j.stateFile)
	if err != nil {
		return nil, false, err
	}
	if old == nil || j.o.Restart {
		if old != nil && old.UploadID != "" {
			j.abort(ctx, old.UploadID)
		}
		j.newState("")
		return nil, false, nil
	}
	if !old.File.sameContent(*j.src.stamp) {
		return nil, false, fmt.Errorf("%w since its upload was begun at %s: restart to send it anew",
			ErrChanged, old.Begun.Local().Format(time.DateTime))
	}
	if old.UploadID == "" {
		// The open was sent, perhaps, and never answered.
		key := ""
		if time.Since(old.Begun) < openKeyLife {
			key = old.OpenKey
		}
		j.newState(key)
		return nil, false, nil
	}
	up, err := j.c.Upload(ctx, old.UploadID)
	switch {
	case Code(err) == models.CodeNotFound:
		j.note("the upload that was begun is gone: beginning anew")
		j.newState("")
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	if up.Size != j.src.size || (j.o.Algorithm != "" && j.o.Algorithm != models.Algorithm(up.Checksum.Algorithm)) {
		return nil, false, fmt.Errorf("%w, or other options are given, since its upload was begun: restart to send it anew", ErrChanged)
	}
	if err := j.adopt(up); err != nil {
		return nil, false, err
	}
	switch models.UploadState(up.State) {
	case models.UploadInit, models.UploadUploading:
		todo, err = j.missing(ctx, !old.File.sameFile(*j.src.stamp))
	case models.UploadCompleting, models.UploadCompleted:
		j.skipped = up.Size
	case models.UploadCommitted:
		if up.File == nil || gone(up.File.State) {
			j.newState("")
			return nil, false, nil
		}
		j.skipped = up.Size
	default:
		j.note("the upload that was begun is %s: beginning anew", up.State)
		j.newState("")
		return nil, false, nil
	}
	j.state, j.resumed = old, true
	return todo, true, err
}

func gone(state string) bool {
	switch models.FileState(state) {
	case models.FileFailed, models.FileDeleting, models.FileDeleteFailed, models.FileDeleted:
		return true
	}
	return false
}

// newState writes down that an upload is about to be opened, and under which key.
func (j *job) newState(key string) {
	s := j.fresh
	s.Begun = time.Now()
	if s.OpenKey = key; key == "" {
		s.OpenKey = NewIdempotencyKey()
	}
	j.state = &s
	if err := j.state.save(); err != nil {
		j.note("%v: this upload cannot be resumed", err)
		j.state = nil
	}
}

// missing asks S3 what it holds and returns what it lacks. verify hashes what it
// holds against what lies here; without it, an unchanged file is taken at its word.
func (j *job) missing(ctx context.Context, verify bool) ([]int, error) {
	if j.geo.Method == models.MethodSingle {
		return j.all(), nil
	}
	list, err := j.c.Parts(ctx, j.up.ID)
	if err != nil {
		return nil, err
	}
	held := make([]bool, j.geo.PartCount+1)
	for _, p := range list.Parts {
		if p.Number < 1 || p.Number > j.geo.PartCount || p.Size != j.geo.PartLength(j.src.size, p.Number) {
			continue
		}
		digest, ok := j.alg.ParseDigest(p.Checksum)
		if known := j.digests[p.Number-1]; ok && known != nil && !bytes.Equal(known, digest) {
			continue // not what was read here: send it again
		}
		if verify && ok {
			same, err := j.matches(ctx, p.Number, digest)
			if err != nil {
				return nil, err
			}
			if !same {
				return nil, fmt.Errorf("%w since its upload was begun: part %d has other bytes; restart to send it anew", ErrChanged, p.Number)
			}
		}
		if verify && !ok {
			continue
		}
		if ok {
			j.digests[p.Number-1] = digest
		}
		held[p.Number] = true
	}
	var todo []int
	j.skipped = 0
	for n := 1; n <= j.geo.PartCount; n++ {
		if held[n] {
			j.skipped += j.geo.PartLength(j.src.size, n)
		} else {
			todo = append(todo, n)
		}
	}
	return todo, nil
}

func (j *job) matches(ctx context.Context, n int, digest []byte) (bool, error) {
	buf, err := j.c.borrow(ctx, j.geo.PartLength(j.src.size, n))
	if err != nil {
		return false, err
	}
	defer j.c.giveBack(buf)
	if err := j.src.read(*buf, int64(n-1)*j.geo.PartSize); err != nil {
		return false, err
	}
	return bytes.Equal(sum(j.alg, *buf), digest), nil
}
