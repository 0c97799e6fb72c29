package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/models"
)

// probeExpiry is the life of the URLs that the probes are sent with: short, since a
// signed PUT outlives the doctor.
const probeExpiry = time.Minute

// probe sends what clients send, wrong things too, and looks what the store makes of
// it. Whatever it wrote it removes, by version id.
func (d *doctor) probe(ctx context.Context, s *Store, cors corsView, notes string) {
	folder := s.Prefix + Folder + strings.ToLower(rand.Text()) + "/"
	defer d.sweep(ctx, s, folder)
	if !s.Primary {
		return
	}
	p := &probing{d: d, s: s, folder: folder, cors: cors}
	heard := d.listen(ctx)
	defer heard.close()
	if !p.single(ctx) {
		return
	}
	for _, alg := range s.Algorithms {
		p.multipart(ctx, alg)
	}
	p.stored(ctx)
	p.cutOff(ctx)
	d.arrival(ctx, s, heard, folder, notes)
}

type probing struct {
	d      *doctor
	s      *Store
	folder string
	cors   corsView
	n      int
}

func (p *probing) spec(alg models.Algorithm) models.ObjectSpec {
	p.n++
	return models.ObjectSpec{Key: fmt.Sprintf("%s%d", p.folder, p.n), UploadID: models.NewUploadID(), ContentType: "text/plain", Algorithm: alg}
}

// answer is what a store said to a request that a client might send.
type answer struct {
	status int
	header http.Header
	code   string
}

func (a answer) good() bool { return a.status/100 == 2 }

func (a answer) String() string { return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.code)) }

func (p *probing) send(ctx context.Context, r models.SignedPart, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the signed URL is none")
	}
	for _, h := range r.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	if p.cors.origin != "" {
		req.Header.Set("Origin", p.cors.origin)
	}
	resp, err := p.d.HTTP.Do(req)
	if err != nil {
		return answer{}, errors.New(short(err)) // without the URL, which is signed
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	a := answer{status: resp.StatusCode, header: resp.Header}
	if _, rest, ok := strings.Cut(string(text), "<Code>"); ok {
		a.code, _, _ = strings.Cut(rest, "</Code>")
	}
	return a, nil
}

// single tries single PUTs. It is false if not even a right one is taken.
func (p *probing) single(ctx context.Context) bool {
	d := p.d
	for i, alg := range p.s.Algorithms {
		check := "checksum " + string(alg)
		body := []byte("berth doctor " + rand.Text())
		spec := p.spec(alg)
		signed, _, err := p.s.Objects.PresignPut(ctx, spec, int64(len(body)), digest(alg, body), probeExpiry, d.Now())
		if err != nil {
			d.add("write", Failure, "nothing can be signed: "+short(err), "Look at the credentials.", "")
			return false
		}
		got, err := p.send(ctx, signed, body)
		if err != nil {
			d.add("write", Failure, "the address that clients are given cannot be reached from here: "+err.Error(),
				"Look at public_endpoint, and at what lies before the store. If only this machine cannot reach it, run the doctor elsewhere.", "")
			return false
		}
		if !got.good() {
			mend, terraform := "Look at what the credentials may do: s3:PutObject under the prefix, and kms:GenerateDataKey with a key of your own; then at the clock.",
				`module "service": role "api"; module "bucket": output role_policies_json`
			if got.status == http.StatusNotImplemented || got.status == http.StatusBadRequest {
				mend, terraform = "The store does not take what Berth signs. See infra/stores/ for which versions do, and for the algorithm to choose.", ""
			}
			d.add("write", Failure, fmt.Sprintf("a right PUT with %s is answered %s", alg, got), mend, terraform)
			return false
		}
		if i == 0 {
			d.ok("write", "a signed PUT of the right bytes is taken")
			p.corsInEarnest(ctx, signed, got)
		}
		p.attested(ctx, check, spec, models.Checksum{Algorithm: alg, Type: models.FullObject, Value: alg.Sum(body)}, int64(len(body)))

		if again, err := p.send(ctx, signed, body); err == nil && again.good() {
			d.condition("a URL that was used can be used again (if-none-match is not enforced)")
		} else if err == nil && i == 0 {
			d.ok("conditional write", "a used URL is refused: %s", again)
		}
		other := slices.Clone(body)
		other[0] ^= 1
		p.refused(ctx, check, spec.Algorithm, body, other,
			"other bytes under a signed "+string(alg)+" are taken: the store does not check what was signed",
			"Use a store, or a version of it, that enforces signed checksums; see infra/stores/. Berth still compares what is attested before a file is active.")
		if i == 0 {
			p.refused(ctx, "length", spec.Algorithm, body, append(slices.Clone(body), '!'),
				"more bytes than were signed are taken: sizes are not enforced by the store",
				"Use a store that verifies all signed headers (content-length); see infra/stores/.")
		}
	}
	return true
}

func (d *doctor) condition(what string) {
	const check = "conditional write"
	for _, f := range d.report.Findings {
		if f.Store == d.at && f.Check == check && f.Status == Warning && f.Found == what {
			return
		}
	}
	d.add(check, Warning, what,
		"Nothing is lost: the file keeps the version that was verified, and the other one is removed as foreign. Keep url_expiry short.", "")
}

// refused sends other bytes under a URL for body, and expects a refusal.
func (p *probing) refused(ctx context.Context, check string, alg models.Algorithm, body, other []byte, fault, mend string) {
	signed, _, err := p.s.Objects.PresignPut(ctx, p.spec(alg), int64(len(body)), digest(alg, body), probeExpiry, p.d.Now())
	if err != nil {
		return // the first one could be signed; said there
	}
	got, err := p.send(ctx, signed, other)
	switch {
	case err != nil: // a store may cut such a request off
		p.d.ok(check, "what was not signed is cut off")
	case got.good():
		p.d.add(check, Failure, fault, mend, "")
	default:
		p.d.ok(check, "what was not signed is refused: %s", got)
	}
}

// attested asks, as verify does, what the store says of the object.
func (p *probing) attested(ctx context.Context, check string, spec models.ObjectSpec, want models.Checksum, size int64) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := p.s.Objects.Head(ctx, spec.Key, "")
	switch {
	case models.ObjectKind(err) == models.ObjectDenied:
		p.d.add(check, Failure, "what was written may not be looked at: nothing is ever verified",
			"Allow s3:GetObject and s3:GetObjectVersion under the prefix, s3:ListBucket on the bucket, and kms:Decrypt with a key of your own.",
			`module "service": roles "api", "events" and "worker"; module "bucket": output role_policies_json`)
	case err != nil:
		p.d.add(check, Failure, "what was written cannot be looked at: "+short(err), "Look whether the store is consistent after a write.", "")
	case o.UploadID != spec.UploadID:
		p.d.add(check, Failure, "the store does not keep x-amz-meta-berth-upload, by which alone an object is known as ours",
			"Let nothing between Berth and the store take metadata away.", "")
	case o.Size != size:
		p.d.add(check, Failure, fmt.Sprintf("the store attests %d bytes of an object of %d", o.Size, size), "Use another store.", "")
	case !slices.Contains(o.Checksums, want):
		p.d.add(check, Failure, fmt.Sprintf("the store attests no %s (%s) that equals what was sent: uploads of such collections are rejected", want.Algorithm, want.Type),
			"Choose another algorithm for the collections of this store (crc64nvme is the broadest), or another version of the store; see infra/stores/.", "")
	default:
		p.d.ok(check, "is attested, %s", want.Type)
	}
	if err == nil && o.VersionID == models.NullVersion {
		p.d.add("versioning", Failure, "what was just written has no version id", "Turn versioning on for the bucket.",
			`module "bucket" sets aws_s3_bucket_versioning to "Enabled"; apply it again`)
	}
}

// multipart goes the way of a large file: begun, sent, listed, put together, attested.
func (p *probing) multipart(ctx context.Context, alg models.Algorithm) {
	d, check := p.d, "multipart "+string(alg)
	fail := func(what string, err error) {
		d.add(check, Failure, what+": "+short(err), "Look at what the credentials may do (s3:PutObject, s3:AbortMultipartUpload, s3:ListMultipartUploadParts); "+
			"if all is allowed, choose another algorithm for the collections of this store; see infra/stores/.",
			`module "service": role "api"; module "bucket": output role_policies_json`)
	}
	spec := p.spec(alg)
	spec.Type = alg.TypeFor(models.MethodMultipart)
	body := []byte("berth doctor, a part " + rand.Text())
	id, parts, err := p.begin(ctx, spec, body)
	if err != nil {
		fail("a multipart upload cannot be sent", err)
		return
	}
	whole := models.CompositeOf(alg, [][]byte{digest(alg, body)})
	if spec.Type == models.FullObject {
		whole = models.Checksum{Algorithm: alg, Type: models.FullObject, Value: alg.Sum(body)}
	}
	done := models.CompleteSpec{Key: spec.Key, S3UploadID: id, Parts: parts, Size: int64(len(body)), Checksum: whole}
	wrong := done
	wrong.Size++
	if _, err := d.complete(ctx, p.s, wrong); err == nil {
		d.add("object size", Warning, "a Complete that states another size is taken (x-amz-mp-object-size is not enforced)",
			"Nothing is lost: Berth adds the parts' sizes up itself, and looks again before a file is active.", "")
	} else if _, err = d.complete(ctx, p.s, done); err != nil {
		fail("the parts cannot be put together", err)
		return
	}
	p.attested(ctx, check, spec, whole, int64(len(body)))

	id, parts, err = p.begin(ctx, spec, body)
	if err != nil {
		fail("a second upload of the key cannot be sent", err)
		return
	}
	done.S3UploadID, done.Parts = id, parts
	if _, err := d.complete(ctx, p.s, done); err == nil {
		d.condition("a Complete replaces what lies at the key (if-none-match is not enforced)")
	}
}

func (d *doctor) complete(ctx context.Context, s *Store, spec models.CompleteSpec) (models.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Objects.CompleteMultipart(ctx, spec)
}

// begin sends the one part of an upload and lists it.
func (p *probing) begin(ctx context.Context, spec models.ObjectSpec, body []byte) (id string, parts []models.Part, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	id, err = p.s.Objects.CreateMultipart(ctx, spec)
	if err != nil {
		return "", nil, err
	}
	signed, _, err := p.s.Objects.PresignParts(ctx, spec.Key, id, []models.PartToSign{{Number: 1, Size: int64(len(body)), Digest: digest(spec.Algorithm, body)}},
		spec.Algorithm, probeExpiry, p.d.Now())
	if err != nil {
		return id, nil, err
	}
	got, err := p.send(ctx, signed[0], body)
	if err != nil {
		return id, nil, err
	}
	if !got.good() {
		return id, nil, fmt.Errorf("a right part is answered %s", got)
	}
	for part, err := range p.s.Objects.ListParts(ctx, spec.Key, id, spec.Algorithm) {
		if err != nil {
			return id, nil, err
		}
		// A store may list none; what was pinned is what it is told then.
		if part.Checksum == "" {
			part.Checksum = spec.Algorithm.Sum(body)
		}
		parts = append(parts, part)
	}
	if len(parts) != 1 {
		return id, nil, fmt.Errorf("%d parts are listed after one was sent", len(parts))
	}
	return id, parts, nil
}

// corsInEarnest asks as a browser would, through whatever lies between: the preflight,
// and what the answer to the PUT exposes.
func (p *probing) corsInEarnest(ctx context.Context, signed models.SignedPart, put answer) {
	const check = "cors in earnest"
	if p.cors.origin == "" || p.cors.known && !p.cors.good {
		return // nobody comes, or it is said already
	}
	d := p.d
	mend := "If the bucket's CORS is right, look at what lies before it: a proxy or CDN must pass OPTIONS, Origin and the Access-Control-* headers on. " + corsMend
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, signed.URL, nil)
	if err != nil {
		return
	}
	var names []string // ascending, as a browser names them
	for _, h := range signed.Headers {
		names = append(names, h.Name)
	}
	req.Header.Set("Origin", p.cors.origin)
	req.Header.Set("Access-Control-Request-Method", signed.Method)
	req.Header.Set("Access-Control-Request-Headers", strings.Join(names, ","))
	resp, err := d.HTTP.Do(req)
	if err != nil {
		d.add(check, Failure, "a preflight gets no answer: "+short(err), mend, "")
		return
	}
	defer resp.Body.Close()
	origin := resp.Header.Get("Access-Control-Allow-Origin")
	exposed := strings.FieldsFunc(put.header.Get("Access-Control-Expose-Headers"), func(r rune) bool { return r == ',' || r == ' ' })
	hidden := missing(exposed, CORSExposed)
	switch {
	case resp.StatusCode/100 != 2 || origin != "*" && origin != p.cors.origin:
		d.add(check, Failure, fmt.Sprintf("a preflight of %s is refused (%d)", p.cors.origin, resp.StatusCode), mend, "")
	case len(hidden) > 0:
		d.add(check, Failure, "the answer to a PUT does not expose "+strings.Join(hidden, ", "), mend, "")
	default:
		d.ok(check, "a preflight of %s passes, and the answer exposes what it must", p.cors.origin)
	}
}

// sweep removes all under the run's folder, and says if something stays.
func (d *doctor) sweep(ctx context.Context, s *Store, folder string) {
	const check = "cleaning"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for m, err := range s.Objects.ListMultiparts(ctx, folder) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		errs = append(errs, s.Objects.AbortMultipart(ctx, m.Key, m.S3UploadID))
	}
	var refs []models.VersionRef
	for v, err := range s.Objects.ListVersions(ctx, folder) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		refs = append(refs, models.VersionRef{Key: v.Key, VersionID: v.VersionID})
	}
	results, err := s.Objects.DeleteVersions(ctx, refs)
	errs = append(errs, err)
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		d.add(check, Failure, "what the probes wrote cannot all be listed and removed, nor could what is abandoned: "+first,
			"Allow s3:ListBucketVersions, s3:ListBucketMultipartUploads, s3:DeleteObject, s3:DeleteObjectVersion, s3:AbortMultipartUpload. What stayed is under "+folder+".",
			`module "service": role "worker"; module "bucket": output role_policies_json`)
		return
	}
	d.ok(check, "versions and uploads can be listed and removed; the probes are gone")
}

func digest(alg models.Algorithm, b []byte) []byte {
	h := alg.New()
	h.Write(b)
	return h.Sum(nil)
}
