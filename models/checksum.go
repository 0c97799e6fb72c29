package models

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"strconv"
	"strings"
)

// Algorithm is a checksum algorithm that S3 can attest.
type Algorithm string

const (
	SHA256    Algorithm = "sha256"
	CRC64NVME Algorithm = "crc64nvme"
	CRC32C    Algorithm = "crc32c"
	CRC32     Algorithm = "crc32" // read only: some stores attest nothing else
)

// Algorithms are those that a collection may choose.
var Algorithms = []Algorithm{SHA256, CRC64NVME, CRC32C}

// ChecksumType says what the value covers: the whole object, or the list of the
// parts' digests.
type ChecksumType string

const (
	FullObject ChecksumType = "full_object"
	Composite  ChecksumType = "composite"
)

// Checksum is a value with its algorithm and type. Value is standard base64 of the
// raw big-endian digest; a composite one ends in "-" and the number of parts, as
// HeadObject gives it. An empty Value means: not known, not declared.
type Checksum struct {
	Algorithm Algorithm
	Type      ChecksumType
	Value     string
}

// IsZero tells whether there is no value.
func (c Checksum) IsZero() bool { return c.Value == "" }

// Polynomials, reflected. Source: the S3 user guide's list of algorithms; the check
// values of "123456789" are e3069283 (CRC32C) and ae8b14860a799888 (CRC64NVME).
const crc64NVMEPoly = 0x9A6C9329AC4BC9B5

var (
	crc32cTable    = crc32.MakeTable(crc32.Castagnoli)
	crc64NVMETable = crc64.MakeTable(crc64NVMEPoly)
)

// Size is the length of the raw digest in bytes, 0 for an unknown algorithm.
func (a Algorithm) Size() int {
	switch a {
	case SHA256:
		return sha256.Size
	case CRC64NVME:
		return 8
	case CRC32C, CRC32:
		return 4
	}
	return 0
}

// New returns a running hash. It panics on an unknown algorithm: validate first.
func (a Algorithm) New() hash.Hash {
	switch a {
	case SHA256:
		return sha256.New()
	case CRC64NVME:
		return crc64.New(crc64NVMETable)
	case CRC32C:
		return crc32.New(crc32cTable)
	case CRC32:
		return crc32.NewIEEE()
	}
	panic("models: unknown checksum algorithm " + string(a))
}

// Sum returns the base64 digest of b.
func (a Algorithm) Sum(b []byte) string {
	h := a.New()
	h.Write(b)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// Linear tells whether digests of parts combine into the digest of the whole.
func (a Algorithm) Linear() bool { return a == CRC64NVME || a == CRC32C || a == CRC32 }

// TypeFor is the type that S3 attests for the method: full object for a single PUT
// and for the CRCs; composite for SHA-256 over parts (S3 has no other).
func (a Algorithm) TypeFor(m Method) ChecksumType {
	if m == MethodMultipart && !a.Linear() {
		return Composite
	}
	return FullObject
}

// Header is the S3 request header of the algorithm.
func (a Algorithm) Header() string { return "x-amz-checksum-" + string(a) }

// ParseDigest decodes a base64 digest of the algorithm. ok is false unless it is
// canonical standard base64 of exactly the right length.
func (a Algorithm) ParseDigest(s string) (raw []byte, ok bool) {
	n := a.Size()
	if n == 0 || len(s) != base64.StdEncoding.EncodedLen(n) {
		return nil, false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != n {
		return nil, false
	}
	return raw, true
}

// SplitComposite takes "value-N" apart; n is 0 where there is no suffix.
func SplitComposite(s string) (digest string, n int) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return s, 0
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil || n < 1 || s[i+1:] != strconv.Itoa(n) {
		return s, 0
	}
	return s[:i], n
}

// CompositeOf is the composite checksum of the parts' raw digests, in order:
// base64(H(d1‖…‖dN)) + "-N". Source: S3 user guide, composite checksums.
func CompositeOf(a Algorithm, digests [][]byte) Checksum {
	h := a.New()
	for _, d := range digests {
		h.Write(d)
	}
	v := base64.StdEncoding.EncodeToString(h.Sum(nil)) + "-" + strconv.Itoa(len(digests))
	return Checksum{Algorithm: a, Type: Composite, Value: v}
}

// FullObjectOf combines the parts' CRCs into the CRC of the whole. lengths are the
// parts' lengths in bytes. ok is false for an algorithm that does not combine.
func FullObjectOf(a Algorithm, digests [][]byte, lengths []int64) (c Checksum, ok bool) {
	if !a.Linear() || len(digests) != len(lengths) || len(digests) == 0 {
		return Checksum{}, false
	}
	comb := crcCombiner{poly: a.poly()}
	crc := beUint(digests[0])
	for i := 1; i < len(digests); i++ {
		crc = comb.combine(crc, beUint(digests[i]), lengths[i])
	}
	raw := make([]byte, 8)
	binary.BigEndian.PutUint64(raw, crc)
	return Checksum{Algorithm: a, Type: FullObject,
		Value: base64.StdEncoding.EncodeToString(raw[8-a.Size():])}, true
}

func (a Algorithm) poly() uint64 {
	switch a {
	case CRC64NVME:
		return crc64NVMEPoly
	case CRC32C:
		return crc32.Castagnoli
	case CRC32:
		return crc32.IEEE
	}
	return 0
}

func beUint(b []byte) uint64 {
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// crcCombiner works with reflected polynomials of up to 64 bits, kept in the low
// bits: crc(A‖B) = crc(A)·x^(8|B|) mod P ⊕ crc(B). The operator of the last length
// is kept, since all parts but the last are equally long.
type crcCombiner struct {
	poly   uint64
	length int64
	op     uint64 // x^(8·length) mod P
}

func (c *crcCombiner) combine(a, b uint64, lenB int64) uint64 {
	if c.length != lenB || c.op == 0 {
		c.length, c.op = lenB, c.xPow8(lenB)
	}
	return c.mul(a, c.op) ^ b
}

func (c *crcCombiner) top() uint64 {
	if c.poly>>32 == 0 {
		return 1 << 31
	}
	return 1 << 63
}

// mul multiplies in GF(2)[x]/P; the highest bit is the coefficient of x^0.
func (c *crcCombiner) mul(a, b uint64) uint64 {
	var p uint64
	for m := c.top(); m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ c.poly
		} else {
			b >>= 1
		}
	}
	return p
}

// xPow8 is x^(8n) mod P by square and multiply.
func (c *crcCombiner) xPow8(n int64) uint64 {
	result := c.top()    // x^0
	base := c.top() >> 8 // x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = c.mul(result, base)
		}
		base = c.mul(base, base)
	}
	return result
}
