package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// flow is one thing that a process does. What is in act happens under the knife.
type flow struct {
	name string
	// prepare makes what act works on, with a process that does not die.
	prepare func(r *run)
	// act is numbered and cut.
	act func(ctx context.Context, s *state, p *process) error
	// again is what the client does when it got no answer: the same once more, on the
	// process that was started in place of the dead one. nil: the client goes away.
	again func(r *run)
	// uploads is how many there must be at the end; -1 is any number.
	uploads int
	// files is what state the last file may end in; "" stands for no file at all.
	files []string
	// broken says that prepare takes something away that must be there, so that F1 to F9 hold
	// only after repair.
	broken bool
	// heavy flows run in make test-crash only.
	heavy bool
	// single says that one call at a time is made: what a crash before a call leaves is then
	// what one after the call before it leaves, and the one is run for both.
	single bool
}

// state is what a flow's phases hand on. It goes to other processes as JSON.
type state struct {
	Upload  models.UploadID
	File    models.FileID
	Replica models.ReplicaID
	Key     string
	Version string
	S3ID    string
	Queue   string
	Answer  string
	Events  []models.ObjectEvent
	Task    models.TaskID
	Token   string // of the lease that a step was asked under

	peer *process // another server, for what is asked of Berth from outside
}

// run is one run of a flow in a world.
type run struct {
	t testing.TB
	w *world
	p *process // a healthy one
	s state
}

func (r *run) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

const ann = "ann"

func request(collection string, size int, change ...func(*controlplane.OpenRequest)) controlplane.OpenRequest {
	req := controlplane.OpenRequest{Collection: collection, Name: "a.pdf", Size: int64(size)}
	for _, f := range change {
		f(&req)
	}
	return req
}

func withKey(req *controlplane.OpenRequest) {
	req.IdempotencyKey, req.RequestHash = "key", []byte("hash")
}

func withSum(req *controlplane.OpenRequest) {
	req.Checksum = &models.Checksum{Algorithm: models.CRC64NVME, Value: models.CRC64NVME.Sum(body(int(req.Size)))}
}

// unknown leaves the size to S3.
func unknown(req *controlplane.OpenRequest) {
	req.SizeUnknown, req.Method = true, models.MethodMultipart
}

// streamed opens and sends one part of whatever size.
func (r *run) streamed(req controlplane.OpenRequest) {
	r.t.Helper()
	v := r.open(req)
	signed, err := r.p.service.Sign(r.p.ctx, caller(ann), v.ID, controlplane.SignRequest{From: 1, To: 1})
	r.ok(err)
	stack.MustSend(r.t, signed.Parts[0], body(large))
}

func body(size int) []byte { return stack.Bytes(7, size) }

func (s *state) set(v controlplane.UploadView) {
	s.Upload, s.File, s.Replica, s.Key, s.Version, s.S3ID = v.ID, v.FileID, v.ReplicaID, v.Key, v.VersionID, v.S3UploadID
}

// open begins an upload of ann's and remembers it.
func (r *run) open(req controlplane.OpenRequest) controlplane.UploadView {
	r.t.Helper()
	v, err := r.p.service.Open(r.p.ctx, caller(ann), req)
	r.ok(err)
	r.s.set(v)
	return v
}

// send signs, pinned, and sends all parts.
func (r *run) send(v controlplane.UploadView) {
	r.t.Helper()
	r.ok(sendAll(r.p.ctx, r.p, v.Upload))
}

func pieces(u models.Upload) (out [][]byte) {
	all := body(int(u.Size))
	for n := 1; n <= u.PartCount; n++ {
		from := int64(n-1) * u.PartSize
		out = append(out, all[from:from+u.PartLength(u.Size, n)])
	}
	return out
}

func signRequest(u models.Upload) (req controlplane.SignRequest) {
	for i, b := range pieces(u) {
		req.Parts = append(req.Parts, controlplane.PartRequest{Number: i + 1, Checksum: u.Checksum.Algorithm.Sum(b)})
	}
	return req
}

func sendAll(ctx context.Context, p *process, u models.Upload) error {
	signed, err := p.service.Sign(ctx, caller(string(u.Owner)), u.ID, signRequest(u))
	if err != nil {
		return err
	}
	cut := pieces(u)
	for _, part := range signed.Parts {
		status, err := stack.Send(ctx, part, cut[part.Number-1])
		if err != nil {
			return err
		}
		// 412: it was sent before.
		if status != http.StatusOK && status != http.StatusPreconditionFailed {
			return fmt.Errorf("S3 answered %d", status)
		}
	}
	return nil
}

func (r *run) complete() controlplane.UploadView {
	r.t.Helper()
	v, err := r.p.service.Complete(r.p.ctx, caller(ann), r.s.Upload, controlplane.CompleteRequest{})
	r.ok(err)
	r.s.set(v)
	return v
}

// sent opens, sends and stops there.
func (r *run) sent(req controlplane.OpenRequest) controlplane.UploadView {
	r.t.Helper()
	v := r.open(req)
	r.send(v)
	return v
}

// active makes an active file.
func (r *run) active(req controlplane.OpenRequest) controlplane.UploadView {
	r.t.Helper()
	r.sent(req)
	return r.complete()
}

// put puts an object at the key as somebody else would, past Berth. upload, if any, is
// written into its metadata.
func (r *run) put(content string, upload models.UploadID) string {
	r.t.Helper()
	in := &s3.PutObjectInput{Bucket: &r.w.s3.Bucket, Key: &r.s.Key, Body: bytes.NewReader([]byte(content))}
	if upload != "" {
		in.Metadata = map[string]string{models.MetaUpload: string(upload)}
	}
	out, err := r.w.s3.Client().PutObject(r.t.Context(), in)
	r.ok(err)
	return *out.VersionId
}

func (r *run) marker() {
	r.t.Helper()
	_, err := r.w.s3.Client().DeleteObject(r.t.Context(), &s3.DeleteObjectInput{Bucket: &r.w.s3.Bucket, Key: &r.s.Key})
	r.ok(err)
}

func (r *run) straying() {
	r.t.Helper()
	_, err := r.w.raw.CreateMultipart(r.t.Context(), models.ObjectSpec{Key: r.s.Key, UploadID: r.s.Upload})
	r.ok(err)
}

// assemble completes the multipart at S3 without Berth: as if a Complete's answer and all
// that follows it were lost.
func (r *run) assemble() {
	r.t.Helper()
	var listed []models.Part
	for p, err := range r.w.raw.ListParts(r.t.Context(), r.s.Key, r.s.S3ID, models.CRC64NVME) {
		r.ok(err)
		listed = append(listed, p)
	}
	size := 0
	for _, p := range listed {
		size += int(p.Size)
	}
	_, err := r.w.raw.CompleteMultipart(r.t.Context(), models.CompleteSpec{Key: r.s.Key, S3UploadID: r.s.S3ID, Parts: listed, Size: int64(size),
		Checksum: models.Checksum{Algorithm: models.CRC64NVME, Type: models.FullObject}})
	r.ok(err)
}

// arrived notes the event of the run's object for a batch, with the version that lies there.
func (r *run) arrived() {
	r.t.Helper()
	o, err := r.w.raw.Head(r.t.Context(), r.s.Key, "")
	r.ok(err)
	r.s.Events = append(r.s.Events, models.ObjectEvent{Store: stack.Main, Key: r.s.Key, VersionID: o.VersionID, Created: true})
}

func settleBatch(ctx context.Context, s *state, p *process) error {
	return errors.Join(p.service.Settle(ctx, s.Events)...)
}

func settle(ctx context.Context, s *state, p *process) error {
	return errors.Join(p.service.Settle(ctx, []models.ObjectEvent{{Store: stack.Main, Key: s.Key, VersionID: s.Version, Created: true}})...)
}

func reapOnce(ctx context.Context, _ *state, p *process) error {
	_, err := p.reaper.RunOnce(ctx)
	return err
}

func stepOnce(ctx context.Context, _ *state, p *process) error {
	_, err := p.steps.RunOnce(ctx)
	return err
}

func named(name string) func(*controlplane.OpenRequest) {
	return func(req *controlplane.OpenRequest) { req.Name = name }
}

func repairOnce(ctx context.Context, _ *state, p *process) error {
	_, err := p.service.Repair(ctx, quiet, 100)
	return err
}

// opens is act and again of an open.
func opens(req controlplane.OpenRequest) func(context.Context, *state, *process) error {
	return func(ctx context.Context, s *state, p *process) error {
		v, err := p.service.Open(ctx, caller(ann), req)
		if err == nil {
			s.set(v)
		}
		return err
	}
}

// reopens repeats an open until it is answered: an open that died half-way is "still
// running" for a while. If the first open got as far as an answer, it must be the same.
func reopens(req controlplane.OpenRequest, thenSend bool) func(*run) {
	return func(r *run) {
		r.t.Helper()
		v, err := r.p.service.Open(r.p.ctx, caller(ann), req)
		if models.ErrorCode(err) == models.CodeIdempotencyInProgress {
			r.w.clock.Advance(time.Minute)
			v, err = r.p.service.Open(r.p.ctx, caller(ann), req)
		}
		r.ok(err)
		if r.s.Upload != "" && v.ID != r.s.Upload {
			r.t.Errorf("F6: the repeated request gave %s, the first %s", v.ID, r.s.Upload)
		}
		third, err := r.p.service.Open(r.p.ctx, caller(ann), req)
		r.ok(err)
		if third.ID != v.ID {
			r.t.Errorf("F6: the third request gave %s, the second %s", third.ID, v.ID)
		}
		r.s.set(v)
		if thenSend {
			r.send(v)
			r.complete()
		}
	}
}

// same is again for what may simply be repeated.
func same(do func(r *run) error) func(*run) {
	return func(r *run) {
		r.t.Helper()
		r.ok(do(r))
		r.ok(do(r))
	}
}

func completes(ctx context.Context, s *state, p *process) error {
	_, err := p.service.Complete(ctx, caller(ann), s.Upload, controlplane.CompleteRequest{})
	return err
}

// completesAgain repeats a complete, twice. One that died has its lease still: the repeated
// one would wait for it, so its time passes first.
func completesAgain(r *run) {
	r.t.Helper()
	for range 2 {
		if value[string](r.t, r.w, "SELECT state FROM uploads WHERE id = $1", string(r.s.Upload)) == "completing" {
			r.w.clock.Advance(6 * time.Minute)
		}
		r.ok(completes(r.p.ctx, &r.s, r.p))
	}
}

func deletes(ctx context.Context, s *state, p *process) error {
	_, err := p.service.Delete(ctx, caller(ann), s.File)
	return err
}

func aborts(ctx context.Context, s *state, p *process) error {
	_, err := p.service.Abort(ctx, caller(ann), s.Upload)
	return err
}

func blocks(block bool) func(context.Context, *state, *process) error {
	return func(ctx context.Context, s *state, p *process) (err error) {
		if block {
			_, err = p.service.Block(ctx, caller(ann), s.File, "why")
		} else {
			_, err = p.service.Unblock(ctx, caller(ann), s.File)
		}
		return err
	}
}

func commits(ctx context.Context, s *state, p *process) error {
	_, err := p.service.Commit(ctx, caller(ann), s.Upload, controlplane.CommitRequest{Name: "b.pdf"})
	return err
}

// imports registers what a flow's prepare has put into the bucket.
func imports(ctx context.Context, s *state, p *process) error {
	f, _, err := p.service.Import(ctx, caller("admin"), controlplane.ImportRequest{Key: s.Key, VersionID: s.Version, Owner: ann,
		Collection: "reject", Name: "a.pdf"})
	if err == nil && s.File != "" && s.File != f.ID {
		err = fmt.Errorf("F6: imported as %s, and before as %s", f.ID, s.File)
	}
	if err == nil {
		s.File = f.ID
	}
	return err
}

// commitsKeyed is commits with an Idempotency-Key, as a server does it.
func commitsKeyed(ctx context.Context, s *state, p *process) error {
	req, kept, err := p.service.TakeKey(ctx, caller(ann), "key", []byte("hash"))
	if err != nil {
		return err
	}
	if kept != nil {
		if s.Answer != "" && s.Answer != string(kept.Body) {
			return fmt.Errorf("F6: answered %s, and before %s", kept.Body, s.Answer)
		}
		s.Answer = string(kept.Body)
		return nil
	}
	f, err := p.service.Commit(ctx, caller(ann), s.Upload, controlplane.CommitRequest{Name: "b.pdf"})
	if err != nil {
		return err
	}
	answer := fmt.Sprintf("%s is %s", f.Name, f.State)
	p.service.FinishKey(ctx, req, models.KeptAnswer{Status: http.StatusOK, Body: []byte(answer)})
	s.Answer = answer
	return nil
}

// commitsKeyedAgain repeats it until it is answered: a key whose process died is "still
// running" for a while. Then the file moves on, and the answer does not.
func commitsKeyedAgain(r *run) {
	r.t.Helper()
	err := commitsKeyed(r.p.ctx, &r.s, r.p)
	if models.ErrorCode(err) == models.CodeIdempotencyInProgress {
		r.w.clock.Advance(time.Minute)
		err = commitsKeyed(r.p.ctx, &r.s, r.p)
	}
	r.ok(err)
	name := "c.pdf"
	_, err = r.p.service.Patch(r.p.ctx, caller(ann), r.s.File, controlplane.PatchRequest{Name: &name})
	r.ok(err)
	r.ok(commitsKeyed(r.p.ctx, &r.s, r.p))
}

var (
	anyFile = []string{"", "failed"}
	onlyOK  = []string{"active"}
)

func flows() []flow {
	name := "other.pdf"
	return []flow{
		{name: "open single", act: opens(request("plain", small)), uploads: -1, files: anyFile},
		{name: "open single with a key, limited", act: opens(request("limited", small, withKey)),
			again: reopens(request("limited", small, withKey), true), uploads: 1, files: onlyOK},
		{name: "open multipart", act: opens(request("plain", large)), uploads: -1, files: anyFile},
		{name: "open multipart with a key", act: opens(request("plain", large, withKey)),
			again: reopens(request("plain", large, withKey), true), uploads: 1, files: onlyOK},
		{name: "open multipart, deduped", act: opens(request("reject", large, withSum)),
			again: reopens(request("reject", large, withSum), true), uploads: 1, files: onlyOK},
		{name: "open what is there already", prepare: func(r *run) { r.active(request("reuse", small, withSum)) },
			act:   opens(request("reuse", small, withSum, withKey)),
			again: reopens(request("reuse", small, withSum, withKey), false), uploads: 1, files: onlyOK},
		{name: "open what is there already, refused", prepare: func(r *run) { r.active(request("reject", small, withSum)) },
			act: func(ctx context.Context, s *state, p *process) error {
				_, err := p.service.Open(ctx, caller(ann), request("reject", small, withSum, withKey))
				if models.ErrorCode(err) == models.CodeDuplicateFile {
					return nil
				}
				return fmt.Errorf("want DUPLICATE_FILE, got: %w", err)
			},
			again: func(r *run) {
				for range 2 {
					_, err := r.p.service.Open(r.p.ctx, caller(ann), request("reject", small, withSum, withKey))
					if models.ErrorCode(err) != models.CodeDuplicateFile {
						r.t.Errorf("F6: repeated: %v, want DUPLICATE_FILE", err)
					}
				}
			}, uploads: 1, files: onlyOK},
		{name: "open what is being sent", prepare: func(r *run) { r.open(request("reject", large, withSum)) },
			act:   opens(request("reject", large, withSum, withKey)),
			again: reopens(request("reject", large, withSum, withKey), true), uploads: 1, files: onlyOK},
		{name: "open over an expired one", prepare: func(r *run) {
			r.sent(request("reject", small, withSum))
			r.marker() // its bytes do not count
			r.w.clock.Advance(deadline)
			r.s = state{}
		}, act: opens(request("reject", small, withSum, withKey)),
			again: reopens(request("reject", small, withSum, withKey), true), uploads: 2, files: onlyOK},
		{name: "open of unknown size", act: opens(request("limited", 0, unknown, withKey)),
			again: reopens(request("limited", 0, unknown, withKey), false), uploads: 1, files: anyFile},
		{name: "complete what is of unknown size", prepare: func(r *run) { r.streamed(request("limited", 0, unknown)) },
			act: completes, again: completesAgain, uploads: 1, files: onlyOK},
		{name: "complete what is there already, as S3 tells", prepare: func(r *run) {
			r.streamed(request("reuse", 0, unknown))
			r.complete()
			r.streamed(request("reuse", 0, unknown))
		}, act: completes, again: completesAgain, uploads: 2, files: []string{"failed"}},
		{name: "sign single", prepare: func(r *run) { r.open(request("sha", small)) },
			act: signs, again: signsAndSends, uploads: 1, files: onlyOK},
		{name: "sign multipart with pins", prepare: func(r *run) { r.open(request("sha", large)) },
			act: signs, again: signsAndSends, uploads: 1, files: onlyOK},
		{name: "complete single", prepare: func(r *run) { r.sent(request("limited", small)) },
			act: completes, again: completesAgain, uploads: 1, files: onlyOK},
		{name: "complete multipart", prepare: func(r *run) { r.sent(request("limited", large)) },
			act: completes, again: completesAgain, uploads: 1, files: onlyOK},
		{name: "complete multipart, the client gone", prepare: func(r *run) { r.sent(request("plain", large)) },
			act: completes, uploads: 1, files: onlyOK},
		{name: "complete multipart of two parts, composite", prepare: func(r *run) { r.sent(request("sha", models.MinPartSize+large)) },
			act: completes, again: completesAgain, uploads: 1, files: onlyOK, heavy: true},
		{name: "complete deferred", prepare: func(r *run) { r.sent(request("draft", large)) },
			act: completes, uploads: 1, files: []string{"failed"}},
		{name: "complete with a part missing", prepare: func(r *run) { r.open(request("plain", large)) },
			act: func(ctx context.Context, s *state, p *process) error {
				if err := completes(ctx, s, p); models.ErrorCode(err) != models.CodeMissingParts {
					return fmt.Errorf("want MISSING_PARTS, got: %w", err)
				}
				return nil
			}, uploads: 1, files: []string{"failed"}},
		{name: "settle single", prepare: func(r *run) { r.sent(request("limited", small)) },
			act: settle, again: same(func(r *run) error { return settle(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "settle multipart", prepare: func(r *run) { r.sent(request("plain", large)); r.assemble() },
			act: settle, uploads: 1, files: onlyOK},
		{name: "settle a batch", prepare: func(r *run) {
			r.sent(request("limited", small))
			r.arrived()
			r.sent(request("draft", small))
			r.arrived()
			r.sent(request("plain", large))
			r.assemble()
			r.arrived()
			r.sent(request("plain", small))
			r.arrived()
		}, act: settleBatch, uploads: 4, files: onlyOK},
		{name: "settle a batch over a foreign version", prepare: func(r *run) {
			r.sent(request("plain", small))
			r.arrived()
			r.sent(request("plain", large))
			evil := r.put("evil", "")
			r.ok(settle(r.p.ctx, &r.s, r.p))
			// They take it away again, so that Complete finds nothing there. It stays noted.
			_, err := r.w.raw.DeleteVersions(r.t.Context(), []models.VersionRef{{Key: r.s.Key, VersionID: evil}})
			r.ok(err)
			r.assemble()
			r.arrived()
		}, act: settleBatch, uploads: 2, files: onlyOK},
		{name: "settle other bytes", prepare: func(r *run) {
			v := r.open(request("limited", small))
			r.put("these are not the bytes", v.ID)
		}, act: settle, uploads: 1, files: []string{"failed"}},
		{name: "settle a foreign version", prepare: func(r *run) {
			r.active(request("plain", small))
			r.s.Version = r.put("evil", "")
		}, act: settle, again: same(func(r *run) error { return settle(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "settle what came late", prepare: func(r *run) {
			v := r.open(request("plain", small))
			r.ok(aborts(r.p.ctx, &r.s, r.p))
			r.ok(r.p.reap())
			stack.MustSend(r.t, v.Parts[0], body(small))
		}, act: settle, uploads: 1, files: []string{"failed"}},
		{name: "commit", prepare: func(r *run) { r.sent(request("draft", small)); r.complete() },
			act: commits, again: same(func(r *run) error { return commits(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "import", prepare: func(r *run) { r.s.Key = "b/old/a.pdf"; r.s.Version = r.put("what was there before", "") },
			act: imports, again: same(func(r *run) error { return imports(r.p.ctx, &r.s, r.p) }), uploads: 0, files: onlyOK},
		{name: "commit with a key", prepare: func(r *run) { r.sent(request("draft", small)); r.complete() },
			act: commitsKeyed, again: commitsKeyedAgain, uploads: 1, files: onlyOK},
		{name: "commit over a foreign version", prepare: func(r *run) {
			r.sent(request("draft", large))
			r.complete()
			r.s.Version = r.put("evil", "")
			r.ok(settle(r.p.ctx, &r.s, r.p))
		}, act: commits, again: same(func(r *run) error { return commits(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "abort single", prepare: func(r *run) { r.sent(request("limited", small)) },
			act: aborts, again: same(func(r *run) error { return aborts(r.p.ctx, &r.s, r.p) }), uploads: 1, files: []string{"failed"}},
		{name: "abort multipart", prepare: func(r *run) { r.sent(request("limited", large)) },
			act: aborts, again: same(func(r *run) error { return aborts(r.p.ctx, &r.s, r.p) }), uploads: 1, files: []string{"failed"}},
		{name: "delete", prepare: func(r *run) { r.active(request("limited", small)) },
			act: deletes, again: same(func(r *run) error { return deletes(r.p.ctx, &r.s, r.p) }), uploads: 1, files: []string{"deleted"}},
		{name: "delete a failed one", prepare: func(r *run) { r.sent(request("limited", small)); r.ok(aborts(r.p.ctx, &r.s, r.p)) },
			act: deletes, again: same(func(r *run) error { return deletes(r.p.ctx, &r.s, r.p) }), uploads: 1, files: []string{"deleted"}},
		{name: "block", prepare: func(r *run) { r.active(request("plain", small)) }, act: blocks(true),
			again: same(func(r *run) error { return blocks(true)(r.p.ctx, &r.s, r.p) }), uploads: 1, files: []string{"blocked"}},
		{name: "unblock", prepare: func(r *run) { r.active(request("plain", small)); r.ok(blocks(true)(r.p.ctx, &r.s, r.p)) }, act: blocks(false),
			again: same(func(r *run) error { return blocks(false)(r.p.ctx, &r.s, r.p) }), uploads: 1, files: onlyOK},
		{name: "patch", prepare: func(r *run) { r.active(request("plain", small)) },
			act: func(ctx context.Context, s *state, p *process) error {
				_, err := p.service.Patch(ctx, caller(ann), s.File, controlplane.PatchRequest{Name: &name})
				return err
			}, uploads: 1, files: onlyOK},
		{name: "reap a deleted file with all that lies there", prepare: func(r *run) {
			r.active(request("plain", large))
			r.put("evil", "")
			r.marker()
			r.straying()
			r.straying()
			r.ok(deletes(r.p.ctx, &r.s, r.p))
		}, act: reapOnce, uploads: 1, files: []string{"deleted"}},
		{name: "reap an aborted single, first sweep", prepare: func(r *run) {
			r.sent(request("plain", small))
			r.ok(aborts(r.p.ctx, &r.s, r.p))
		}, act: reapOnce, uploads: 1, files: []string{"failed"}},
		{name: "reap an aborted single, second sweep", prepare: func(r *run) {
			v := r.open(request("plain", small))
			r.ok(aborts(r.p.ctx, &r.s, r.p))
			r.ok(r.p.reap())
			stack.MustSend(r.t, v.Parts[0], body(small))
			r.w.clock.Advance(urlLife + grace + time.Minute)
		}, act: reapOnce, uploads: 1, files: []string{"failed"}},
		{name: "reap an aborted multipart", prepare: func(r *run) {
			r.sent(request("plain", large))
			r.straying()
			r.ok(aborts(r.p.ctx, &r.s, r.p))
		}, act: reapOnce, uploads: 1, files: []string{"failed"}},
		{name: "reap what came after the deletion", prepare: func(r *run) {
			r.active(request("plain", small))
			r.ok(deletes(r.p.ctx, &r.s, r.p))
			r.ok(r.w.settle(r.p))
			r.s.Version = r.put("evil", "")
			r.ok(settle(r.p.ctx, &r.s, r.p))
		}, act: reapOnce, uploads: 1, files: []string{"deleted"}},
		{name: "reap a foreign version", prepare: func(r *run) {
			r.active(request("plain", small))
			r.s.Version = r.put("evil", "")
			r.ok(settle(r.p.ctx, &r.s, r.p))
		}, act: reapOnce, uploads: 1, files: onlyOK},
		{name: "reap too early", prepare: func(r *run) {
			r.sent(request("plain", small))
			r.ok(r.p.store.EnsureReap(r.p.ctx, r.s.Replica, r.w.clock.Now()))
		}, act: reapOnce, uploads: 1, files: onlyOK},
		{name: "repair: expire", prepare: func(r *run) {
			r.open(request("limited", small))
			r.w.clock.Advance(deadline)
		}, act: repairOnce, uploads: 1, files: []string{"failed"}},
		{name: "repair: expire a multipart", prepare: func(r *run) {
			r.open(request("limited", large))
			r.w.clock.Advance(deadline)
		}, act: repairOnce, uploads: 1, files: []string{"failed"}},
		{name: "repair: expire what was not committed", prepare: func(r *run) {
			r.sent(request("draft", small))
			r.complete()
			r.w.clock.Advance(deadline)
		}, act: repairOnce, uploads: 1, files: []string{"failed"}},
		{name: "repair: finish at the deadline", prepare: func(r *run) {
			r.sent(request("limited", large))
			r.w.clock.Advance(deadline)
		}, act: repairOnce, uploads: 1, files: onlyOK},
		{name: "repair: recheck a quiet one", prepare: func(r *run) {
			r.sent(request("plain", small))
			r.w.clock.Advance(2 * quiet)
		}, act: repairOnce, uploads: 1, files: onlyOK},
		{name: "repair: recheck a complete that died before S3 had it", prepare: func(r *run) {
			v := r.sent(request("plain", large))
			r.beginComplete(v)
			r.w.clock.Advance(6 * time.Minute)
		}, act: repairOnce, again: completesAgain, uploads: 1, files: onlyOK},
		{name: "repair: recheck a complete that died after S3 had it", prepare: func(r *run) {
			v := r.sent(request("plain", large))
			r.beginComplete(v)
			r.assemble()
			r.w.clock.Advance(6 * time.Minute)
		}, act: repairOnce, uploads: 1, files: onlyOK},
		{name: "repair: make a reap task that is missing", prepare: func(r *run) {
			r.active(request("plain", small))
			r.ok(deletes(r.p.ctx, &r.s, r.p))
			_, err := r.w.pool.Exec(r.t.Context(), "DELETE FROM tasks")
			r.ok(err)
		}, act: repairOnce, uploads: 1, files: []string{"deleted"}, broken: true},
		{name: "process: the first of two steps", prepare: func(r *run) { r.active(request("checked", small)) },
			act: stepOnce, uploads: 1, files: onlyOK},
		{name: "process: the last step passes", prepare: func(r *run) {
			r.active(request("checked", small))
			r.ok(stepOnce(r.p.ctx, nil, r.p))
		}, act: stepOnce, uploads: 1, files: onlyOK},
		{name: "process: the last step blocks", prepare: func(r *run) {
			r.active(request("checked", small, named("block-me.pdf")))
			r.ok(stepOnce(r.p.ctx, nil, r.p))
		}, act: stepOnce, uploads: 1, files: []string{"blocked"}},
		{name: "process: the last step deletes", prepare: func(r *run) {
			r.active(request("checked", small, named("delete-me.pdf")))
			r.ok(stepOnce(r.p.ctx, nil, r.p))
		}, act: stepOnce, uploads: 1, files: []string{"failed"}},
		{name: "publish an event", prepare: func(r *run) { r.active(request("plain", small)) },
			act: func(ctx context.Context, _ *state, p *process) error {
				_, err := p.events.RunOnce(ctx)
				return err
			}, uploads: 1, files: onlyOK},
		{name: "housekeeping", prepare: func(r *run) { r.active(request("plain", small, withKey)); r.w.clock.Advance(48 * time.Hour) },
			act: func(ctx context.Context, _ *state, p *process) error {
				return p.store.Housekeep(ctx, p.reaper.Now(), 0, 100)
			}, uploads: 1, files: onlyOK},
		{name: "consume an event", prepare: func(r *run) { r.sent(request("plain", small)); r.s.Queue = r.notified() },
			act: consumes, uploads: 1, files: onlyOK},
	}
}

func (r *run) beginComplete(v controlplane.UploadView) {
	r.t.Helper()
	now := r.w.clock.Now()
	_, ok, err := r.p.store.BeginComplete(r.p.ctx, v.Upload, now.Add(5*time.Minute), now, "owner:ann")
	r.ok(err)
	if !ok {
		r.t.Fatal("not begun")
	}
}

func signs(ctx context.Context, s *state, p *process) error {
	u, _, err := p.store.Upload(ctx, models.Whose{}, s.Upload)
	if err != nil {
		return err
	}
	_, err = p.service.Sign(ctx, caller(ann), s.Upload, signRequest(u))
	return err
}

func signsAndSends(r *run) {
	r.t.Helper()
	u, _, err := r.p.store.Upload(r.p.ctx, models.Whose{}, r.s.Upload)
	r.ok(err)
	r.ok(sendAll(r.p.ctx, r.p, u))
	r.complete()
}
