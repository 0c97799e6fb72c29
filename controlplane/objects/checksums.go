package objects

import (
	"strings"

	"berth/models"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// The SDK has one field for each algorithm; here they become values, and back.

func partChecksum(p *types.Part, alg models.Algorithm) string {
	switch alg {
	case models.SHA256:
		return aws.ToString(p.ChecksumSHA256)
	case models.CRC64NVME:
		return aws.ToString(p.ChecksumCRC64NVME)
	case models.CRC32C:
		return aws.ToString(p.ChecksumCRC32C)
	case models.CRC32:
		return aws.ToString(p.ChecksumCRC32)
	}
	return ""
}

func setPartChecksum(p *types.CompletedPart, alg models.Algorithm, value string) {
	switch alg {
	case models.SHA256:
		p.ChecksumSHA256 = &value
	case models.CRC64NVME:
		p.ChecksumCRC64NVME = &value
	case models.CRC32C:
		p.ChecksumCRC32C = &value
	case models.CRC32:
		p.ChecksumCRC32 = &value
	}
}

func setWholeChecksum(in *s3.CompleteMultipartUploadInput, c models.Checksum) {
	in.ChecksumType = types.ChecksumType(strings.ToUpper(string(c.Type)))
	switch c.Algorithm {
	case models.SHA256:
		in.ChecksumSHA256 = &c.Value
	case models.CRC64NVME:
		in.ChecksumCRC64NVME = &c.Value
	case models.CRC32C:
		in.ChecksumCRC32C = &c.Value
	case models.CRC32:
		in.ChecksumCRC32 = &c.Value
	}
}

// checksums are all that a store attests, the strongest first. Older stores give no
// type; the value then tells it, since only a composite one ends in a count.
func checksums(kind types.ChecksumType, sha256, crc64nvme, crc32c, crc32 *string) []models.Checksum {
	var out []models.Checksum
	for _, c := range []struct {
		alg   models.Algorithm
		value *string
	}{{models.SHA256, sha256}, {models.CRC64NVME, crc64nvme}, {models.CRC32C, crc32c}, {models.CRC32, crc32}} {
		if aws.ToString(c.value) == "" {
			continue
		}
		t := models.ChecksumType(strings.ToLower(string(kind)))
		if t == "" {
			t = models.FullObject
			if _, n := models.SplitComposite(*c.value); n > 0 {
				t = models.Composite
			}
		}
		out = append(out, models.Checksum{Algorithm: c.alg, Type: t, Value: *c.value})
	}
	return out
}
