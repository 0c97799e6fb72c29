package models

// S3's limits. Source: S3 user guide, multipart upload limits.
const (
	MaxParts      = 10_000
	MinPartSize   = 5 << 20 // 5 MiB, the last part excepted
	MaxPartSize   = 5 << 30 // 5 GiB
	MaxSinglePut  = 5 << 30
	MaxObjectSize = int64(MaxParts) * MaxPartSize // 48.8 TiB
)

// Defaults of the geometry, in bytes.
const (
	DefaultPartSize  = 16 << 20
	DefaultSingleMax = 16 << 20
)

// Geometry says how a file's bytes are cut. It is the server's alone, so that two
// clients of one upload agree without talking.
type Geometry struct {
	Method    Method
	PartSize  int64 // bytes; every part but the last has it
	PartCount int
}

// Plan cuts size bytes. Up to singleMax they go in one PUT; beyond, in equal parts
// of prefer bytes, or of the least whole MiB that keeps them within MaxParts. Equal
// parts, because some stores take no others. Zero bytes are one empty PUT.
func Plan(size, prefer, singleMax int64) (Geometry, error) {
	if size < 0 {
		return Geometry{}, Errorf(CodeInvalidRequest, "size is negative")
	}
	if size > MaxObjectSize {
		return Geometry{}, Errorf(CodeTooLarge, "no store takes an object of more than %d bytes", MaxObjectSize).With("max_size", MaxObjectSize)
	}
	if singleMax <= 0 {
		singleMax = DefaultSingleMax
	}
	if size <= min(singleMax, MaxSinglePut) {
		return Geometry{Method: MethodSingle, PartSize: size, PartCount: 1}, nil
	}
	part := min(max(prefer, MinPartSize), MaxPartSize)
	if prefer <= 0 {
		part = DefaultPartSize
	}
	if ceilDiv(size, part) > MaxParts {
		const mib = 1 << 20
		part = ceilDiv(ceilDiv(size, MaxParts), mib) * mib
		part = min(part, MaxPartSize)
	}
	return Geometry{Method: MethodMultipart, PartSize: part, PartCount: int(ceilDiv(size, part))}, nil
}

// PartLength is the length in bytes of part number n (from 1) of size bytes.
func (g Geometry) PartLength(size int64, n int) int64 {
	if n == g.PartCount {
		return size - g.PartSize*int64(g.PartCount-1)
	}
	return g.PartSize
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
