package models

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// IdentityOf is what makes two files the same: algorithm, type, part size, value and
// size. The part size belongs to it, because a composite value depends on it. It is
// empty where nothing was declared.
func IdentityOf(c Checksum, partSize, size int64) string {
	if c.IsZero() {
		return ""
	}
	if c.Type == FullObject {
		partSize = 0 // the value is of the whole, however it was cut
	}
	return strings.Join([]string{
		string(c.Algorithm), string(c.Type), strconv.FormatInt(partSize, 10), c.Value, strconv.FormatInt(size, 10),
	}, "|")
}

// Declare settles what a client declared against the collection's algorithm and the
// geometry, into the form in which S3 will attest it. A nil declaration leaves Value
// empty.
func Declare(c *Checksum, col Algorithm, g Geometry) (Checksum, error) {
	bad := func(format string, args ...any) (Checksum, error) {
		return Checksum{}, Errorf(CodeInvalidRequest, "checksum: "+format, args...).With("field", "checksum")
	}
	plan := Checksum{Algorithm: col, Type: col.TypeFor(g.Method)}
	if c == nil {
		return plan, nil
	}
	alg := Algorithm(strings.ToLower(string(c.Algorithm)))
	switch alg {
	case SHA256, CRC64NVME, CRC32C:
		plan.Algorithm = alg
	case "":
	default:
		return bad("algorithm %.40q is not one of sha256, crc64nvme, crc32c", c.Algorithm)
	}
	plan.Type = plan.Algorithm.TypeFor(g.Method)
	switch typ := ChecksumType(strings.ToLower(string(c.Type))); typ {
	case "", plan.Type:
	case FullObject, Composite:
		return Checksum{}, Errorf(CodeInvalidRequest,
			"checksum: of a %s upload S3 attests %s as %s, not %s", g.Method, plan.Algorithm, plan.Type, typ).
			With("field", "checksum").With("type", string(plan.Type)).
			With("part_size", g.PartSize).With("part_count", g.PartCount)
	default:
		return bad("type %.40q is not one of full_object, composite", c.Type)
	}
	if c.Value == "" {
		return plan, nil
	}
	digest, n := c.Value, 0
	if plan.Type == Composite {
		digest, n = SplitComposite(c.Value)
	}
	if _, ok := plan.Algorithm.ParseDigest(digest); !ok {
		return bad("value is not the base64 of a %s digest (%d bytes)", plan.Algorithm, plan.Algorithm.Size())
	}
	plan.Value = digest
	if plan.Type == Composite {
		if n != 0 && n != g.PartCount {
			return Checksum{}, Errorf(CodeInvalidRequest, "checksum: the composite value is over %d parts, the upload has %d", n, g.PartCount).
				With("field", "checksum").With("part_size", g.PartSize).With("part_count", g.PartCount)
		}
		plan.Value += "-" + strconv.Itoa(g.PartCount)
	}
	return plan, nil
}

// Expected is the checksum that S3 must attest, from what was declared and from what
// was pinned. Its Value is empty where neither tells. conflict is true where both tell
// and differ.
func Expected(u *Upload, pins []Pin) (want Checksum, conflict bool) {
	want = u.Checksum
	if u.EmptyBody() && want.Algorithm != "" && want.IsZero() {
		want.Value = want.Algorithm.Sum(nil)
	}
	derived, ok := fromPins(u, pins)
	if !ok {
		return want, false
	}
	if want.IsZero() {
		return derived, false
	}
	return want, want.Value != derived.Value
}

func fromPins(u *Upload, pins []Pin) (Checksum, bool) {
	if u.Checksum.Algorithm == "" || u.Undeclared || len(pins) != u.PartCount {
		return Checksum{}, false
	}
	digests := make([][]byte, u.PartCount)
	lengths := make([]int64, u.PartCount)
	for _, p := range pins {
		if p.Number < 1 || p.Number > u.PartCount || len(p.Digest) != u.Checksum.Algorithm.Size() {
			return Checksum{}, false
		}
		digests[p.Number-1] = p.Digest
		lengths[p.Number-1] = u.PartLength(u.Size, p.Number)
	}
	for _, d := range digests {
		if d == nil {
			return Checksum{}, false
		}
	}
	switch {
	case u.Method == MethodSingle:
		return Checksum{Algorithm: u.Checksum.Algorithm, Type: FullObject,
			Value: base64.StdEncoding.EncodeToString(digests[0])}, true
	case u.Checksum.Type == Composite:
		return CompositeOf(u.Checksum.Algorithm, digests), true
	default:
		return FullObjectOf(u.Checksum.Algorithm, digests, lengths)
	}
}

// Verdict is what verification found.
type Verdict struct {
	OK       bool
	Foreign  bool     // not ours: the metadata names another upload, or none
	Checksum Checksum // what is recorded
	Code     Code
	Reason   string
}

// Verify compares what S3 attests of one version with what was declared: the
// upload's id in the metadata, the size, the checksum. It is the only judge of F1.
// Where nothing is expected, what S3 attests is recorded: the planned algorithm's
// value, or else any.
func Verify(u *Upload, want Checksum, o Object) Verdict {
	if o.UploadID != u.ID {
		return Verdict{Foreign: true}
	}
	if !u.Undeclared && o.Size != u.Size {
		return Verdict{Code: CodeSizeMismatch,
			Reason: fmt.Sprintf("declared %d bytes, S3 holds %d", u.Size, o.Size)}
	}
	if !want.IsZero() {
		for _, c := range o.Checksums {
			if c.Algorithm != want.Algorithm || c.Type != want.Type {
				continue
			}
			if c.Value == want.Value {
				return Verdict{OK: true, Checksum: c}
			}
			return Verdict{Code: CodeChecksumMismatch,
				Reason: fmt.Sprintf("declared %s %s, S3 attests %s", want.Algorithm, want.Value, c.Value)}
		}
		return Verdict{Code: CodeChecksumMismatch,
			Reason: fmt.Sprintf("the store attests no %s %s checksum", want.Type, want.Algorithm)}
	}
	v := Verdict{OK: true}
	for i, c := range o.Checksums {
		if i == 0 || c.Algorithm == u.Checksum.Algorithm {
			v.Checksum = c
		}
	}
	return v
}

// PartProblem is what is wrong with the parts that S3 lists.
type PartProblem struct {
	Code  Code
	Parts []int
}

// CheckParts compares the parts that S3 lists with the geometry, the pins, and the
// client's own list (optional): S3's list decides, the others are compared. nil means
// that nothing is wrong.
func CheckParts(u *Upload, listed []Part, pins []Pin, claimed []Part) *PartProblem {
	if u.Undeclared {
		return checkUndeclared(listed, claimed)
	}
	byNumber := make(map[int]Part, len(listed))
	for _, p := range listed {
		byNumber[p.Number] = p
	}
	pinned := make(map[int]string, len(pins))
	for _, p := range pins {
		pinned[p.Number] = base64.StdEncoding.EncodeToString(p.Digest)
	}
	var missing, sized, corrupt []int
	for n := 1; n <= u.PartCount; n++ {
		p, there := byNumber[n]
		pin := pinned[n]
		switch {
		case !there:
			missing = append(missing, n)
		case p.Size != u.PartLength(u.Size, n):
			sized = append(sized, n)
		case pin != "" && p.Checksum != "" && p.Checksum != pin:
			corrupt = append(corrupt, n)
		}
	}
	for _, c := range claimed {
		p, there := byNumber[c.Number]
		if !there || c.Number > u.PartCount {
			continue
		}
		if (c.ETag != "" && strings.Trim(c.ETag, `"`) != p.ETag) || (c.Checksum != "" && p.Checksum != "" && c.Checksum != p.Checksum) {
			corrupt = append(corrupt, c.Number)
		}
	}
	switch {
	case len(missing) > 0:
		return &PartProblem{CodeMissingParts, missing}
	case len(sized) > 0:
		return &PartProblem{CodeSizeMismatch, sized}
	case len(corrupt) > 0:
		return &PartProblem{CodePartCorrupt, corrupt}
	}
	return nil
}

// checkUndeclared judges the parts of an upload whose size nobody declared: they must be
// 1 to N without a gap and, where the client lists its own, exactly those.
func checkUndeclared(listed, claimed []Part) *PartProblem {
	have := make(map[int]Part, len(listed))
	last := 0
	for _, p := range listed {
		have[p.Number] = p
		last = max(last, p.Number)
	}
	for _, c := range claimed {
		last = max(last, c.Number)
	}
	var missing, corrupt []int
	for n := 1; n <= max(last, 1); n++ {
		if _, ok := have[n]; !ok {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		return &PartProblem{CodeMissingParts, missing}
	}
	if len(claimed) == 0 {
		return nil
	}
	told := make(map[int]bool, len(claimed))
	for _, c := range claimed {
		told[c.Number] = true
		if c.ETag != "" && strings.Trim(c.ETag, `"`) != have[c.Number].ETag {
			corrupt = append(corrupt, c.Number)
		}
	}
	for _, p := range listed {
		if !told[p.Number] {
			corrupt = append(corrupt, p.Number) // S3 holds a part that the client does not know of
		}
	}
	if len(corrupt) > 0 {
		return &PartProblem{CodePartCorrupt, corrupt}
	}
	return nil
}

// SizeAllowed tells whether a size that nobody declared is within the policy, once S3
// has told it.
func SizeAllowed(c *Collection, size int64) error {
	switch {
	case c.MaxSize > 0 && size > c.MaxSize:
		return Errorf(CodeTooLarge, "the collection takes files of at most %d bytes", c.MaxSize).With("max_size", c.MaxSize)
	case size < c.MinSize:
		return Errorf(CodeInvalidRequest, "size: the collection takes files of at least %d bytes", c.MinSize).With("field", "size")
	}
	return nil
}

// MissingRanges are the part numbers of 1..count that are not listed, as ranges with
// both ends included.
func MissingRanges(listed []Part, count int) [][2]int {
	have := make([]bool, count+1)
	for _, p := range listed {
		if p.Number >= 1 && p.Number <= count {
			have[p.Number] = true
		}
	}
	out := [][2]int{}
	for n := 1; n <= count; n++ {
		if have[n] {
			continue
		}
		if k := len(out); k > 0 && out[k-1][1] == n-1 {
			out[k-1][1] = n
		} else {
			out = append(out, [2]int{n, n})
		}
	}
	return out
}

// Expired is what a session past its end answers with.
func Expired() error { return Errorf(CodeSessionExpired, "the upload has expired") }

// Closed returns the error that a session which takes nothing more answers with, or
// nil while it is open at now. It is a function of the row and the clock: a session
// past its end is expired before anybody has written that down.
func Closed(u *Upload, now time.Time) error {
	switch u.State {
	case UploadRejected:
		if u.ReusedFile != "" {
			return Errorf(CodeSessionClosed, "the upload is committed: the same file was there already")
		}
		return Errorf(u.ReasonCode, "%s", u.Reason)
	case UploadExpired:
		return Expired()
	case UploadAborted:
		return Errorf(CodeSessionClosed, "the upload was aborted")
	case UploadCommitted:
		return Errorf(CodeSessionClosed, "the upload is committed")
	case UploadInit, UploadUploading:
		if !now.Before(u.ExpiresAt) {
			return Expired()
		}
	case UploadCompleting, UploadCompleted:
	}
	return nil
}

// DefaultMaxAttempts is after how many attempts a task fails for good and waits for a
// person.
const DefaultMaxAttempts = 20

// WayOut is the chain of transitions by which a replica that is no longer wanted
// leaves: to delete_pending, or, never started, straight to deleted. It is empty where
// it is on its way already.
func WayOut(s ReplicaState) []ReplicaState {
	switch s {
	case ReplicaPending:
		return []ReplicaState{ReplicaDeleted}
	case ReplicaWriting:
		return []ReplicaState{ReplicaWriteFailed, ReplicaDeletePending}
	case ReplicaReady, ReplicaWriteFailed, ReplicaDeleteFailed:
		return []ReplicaState{ReplicaDeletePending}
	}
	return nil
}
