package config

import (
	"strings"

	"berth/models"
)

// Policies are the collections as the rest of Berth knows them.
func (c *Config) Policies() map[string]models.Collection {
	out := make(map[string]models.Collection, len(c.Collections))
	for name, k := range c.Collections {
		p := models.Collection{
			Name:             name,
			Extensions:       k.Extensions,
			ContentTypes:     k.ContentTypes,
			MinSize:          int64(k.MinSize),
			MaxSize:          int64(k.MaxSize),
			MaxFiles:         k.MaxFiles,
			MaxBytes:         int64(k.MaxBytes),
			MaxOpen:          k.MaxOpen,
			Dedupe:           models.DedupeMode(k.Dedupe),
			Algorithm:        models.Algorithm(k.Algorithm),
			ChecksumRequired: k.ChecksumRequired,
			Commit:           models.CommitMode(k.Commit),
			Store:            models.StoreName(k.Store),
			PartSize:         int64(k.PartSize),
			SingleMax:        int64(k.SingleMax),
			Deadline:         k.Deadline.Std(),
			HardDeadline:     k.HardDeadline.Std(),
			Grace:            k.Grace.Std(),
			URLExpiry:        k.URLExpiry.Std(),
			StorageClass:     k.StorageClass,
			SSEKMSKeyID:      k.SSEKMSKeyID,
			InlineTypes:      k.InlineTypes,
			VerifyOnRead:     k.VerifyOnRead,
			MaxMetadataBytes: int(k.MaxMetadataBytes),
		}
		for _, s := range k.Steps {
			p.Steps = append(p.Steps, models.Step{
				Name: s.Name, Kind: s.Kind, URL: s.URL, Secret: s.Secret.Reveal(), Timeout: s.Timeout.Std(),
				Action: models.StepVerdict(s.Action),
			})
		}
		out[name] = p
	}
	return out
}

// StoreOf finds the store of an object by its bucket and key. No two stores fit: Load
// refuses prefixes that overlap.
func (c *Config) StoreOf(bucket, key string) (models.StoreName, bool) {
	for name, s := range c.Stores {
		if s.Bucket == bucket && strings.HasPrefix(key, s.Prefix) {
			return models.StoreName(name), true
		}
	}
	return "", false
}
