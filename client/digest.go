package client

import (
	"encoding/base64"
	"hash"

	"berth/models"

	"github.com/minio/crc64nvme"
)

// newHash is the algorithm's running hash by the fastest code at hand: the standard
// library has SHA-256 and CRC32C in assembler, but no such CRC-64.
func newHash(a models.Algorithm) hash.Hash {
	if a == models.CRC64NVME {
		return crc64nvme.New()
	}
	return a.New()
}

func sum(a models.Algorithm, b []byte) []byte {
	h := newHash(a)
	h.Write(b)
	return h.Sum(nil)
}

func encode(digest []byte) string { return base64.StdEncoding.EncodeToString(digest) }

func known(a models.Algorithm) bool { return a.Size() > 0 }

// whole is the checksum of the file from the digests of its pieces, in order, as S3
// attests it; ok is false if a digest is missing or they do not combine.
func whole(a models.Algorithm, t models.ChecksumType, digests [][]byte, lengths []int64) (c models.Checksum, ok bool) {
	for _, d := range digests {
		if len(d) != a.Size() {
			return models.Checksum{}, false
		}
	}
	switch {
	case len(digests) == 0:
		return models.Checksum{}, false
	case t == models.Composite:
		return models.CompositeOf(a, digests), true
	case len(digests) == 1:
		return models.Checksum{Algorithm: a, Type: models.FullObject, Value: encode(digests[0])}, true
	default:
		return models.FullObjectOf(a, digests, lengths)
	}
}
