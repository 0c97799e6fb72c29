package store

import (
	"encoding/json"
	"time"

	"berth/models"
)

// The columns of a record, in the form in which its row struct takes them.
const (
	uploadColumns = `u.id, u.tenant, u.owner, u.collection, u.file_id, u.replica_id, u.state, u.method, u.size,
		u.part_size, u.part_count, u.checksum_algorithm, u.checksum_type, u.checksum_value, u.commit_mode,
		COALESCE(u.identity, '') AS identity, u.store, u.key, COALESCE(u.s3_upload_id, '') AS s3_upload_id,
		u.content_type, u.undeclared, u.contested, COALESCE(u.reused_file_id, '') AS reused_file_id, u.attempt, u.lease_until, u.signed_until, u.expires_at, u.hard_expires_at,
		COALESCE(u.version_id, '') AS version_id, COALESCE(u.etag, '') AS etag,
		COALESCE(u.attested_algorithm, '') AS attested_algorithm, COALESCE(u.attested_type, '') AS attested_type,
		COALESCE(u.attested_value, '') AS attested_value, COALESCE(u.reason_code, '') AS reason_code,
		COALESCE(u.reason, '') AS reason, COALESCE(u.traceparent, '') AS traceparent, u.created_at, u.updated_at, u.completed_at, u.closed_at`
	fileColumns = `f.id, f.tenant, f.owner, f.collection, f.name, f.size, f.part_size, f.content_type, f.metadata,
		f.state, f.checksum_algorithm, f.checksum_type, f.checksum_value, f.declared,
		COALESCE(f.version_id, '') AS version_id, COALESCE(f.etag, '') AS etag, COALESCE(f.upload_id, '') AS upload_id,
		COALESCE(f.parent_id, '') AS parent_id,
		f.guarded, COALESCE(f.reason_code, '') AS reason_code, COALESCE(f.reason, '') AS reason,
		f.created_at, f.updated_at, f.activated_at, f.deleted_at`
	// the same of a file that is read beside another row, which has columns of these names
	fileColumnsToo = `f.id AS f_id, f.tenant AS f_tenant, f.owner AS f_owner, f.collection AS f_collection, f.name AS f_name, f.size AS f_size,
		f.part_size AS f_part_size, f.content_type AS f_content_type, f.metadata AS f_metadata, f.state AS f_state,
		f.checksum_algorithm AS f_checksum_algorithm, f.checksum_type AS f_checksum_type, f.checksum_value AS f_checksum_value,
		f.declared AS f_declared, COALESCE(f.version_id, '') AS f_version_id, COALESCE(f.etag, '') AS f_etag,
		COALESCE(f.upload_id, '') AS f_upload_id, COALESCE(f.parent_id, '') AS f_parent_id, f.guarded AS f_guarded,
		COALESCE(f.reason_code, '') AS f_reason_code, COALESCE(f.reason, '') AS f_reason,
		f.created_at AS f_created_at, f.updated_at AS f_updated_at, f.activated_at AS f_activated_at, f.deleted_at AS f_deleted_at`
	replicaColumns = `r.id, r.file_id, r.store, r.key, r.is_primary, r.state, r.size,
		COALESCE(r.version_id, '') AS version_id, COALESCE(r.etag, '') AS etag, r.created_at, r.updated_at`
)

type uploadRow struct {
	ID, Tenant, Owner, Collection, FileID, ReplicaID, State, Method string
	Size, PartSize                                                  int64
	PartCount                                                       int
	ChecksumAlgorithm, ChecksumType, ChecksumValue                  string
	CommitMode, Identity, Store, Key                                string
	S3UploadID                                                      string `gorm:"column:s3_upload_id"`
	ContentType, ReusedFileID                                       string
	Undeclared, Contested                                           bool
	Attempt                                                         int
	LeaseUntil, SignedUntil                                         *time.Time
	ExpiresAt, HardExpiresAt                                        time.Time
	VersionID                                                       string
	ETag                                                            string `gorm:"column:etag"`
	AttestedAlgorithm, AttestedType, AttestedValue                  string
	ReasonCode, Reason, Traceparent                                 string
	CreatedAt, UpdatedAt                                            time.Time
	CompletedAt, ClosedAt                                           *time.Time
}

func (r *uploadRow) model() models.Upload {
	return models.Upload{
		ID: models.UploadID(r.ID), Tenant: models.Tenant(r.Tenant), Owner: models.Owner(r.Owner),
		Collection: r.Collection, FileID: models.FileID(r.FileID), ReplicaID: models.ReplicaID(r.ReplicaID),
		State:    models.UploadState(r.State),
		Geometry: models.Geometry{Method: models.Method(r.Method), PartSize: r.PartSize, PartCount: r.PartCount},
		Size:     r.Size, Undeclared: r.Undeclared, Contested: r.Contested, ReusedFile: models.FileID(r.ReusedFileID),
		Checksum: checksum(r.ChecksumAlgorithm, r.ChecksumType, r.ChecksumValue),
		Commit:   models.CommitMode(r.CommitMode), Identity: r.Identity,
		Store: models.StoreName(r.Store), Key: r.Key, S3UploadID: r.S3UploadID, ContentType: r.ContentType,
		Attempt: r.Attempt, LeaseUntil: timeOf(r.LeaseUntil), SignedUntil: timeOf(r.SignedUntil),
		ExpiresAt: r.ExpiresAt.UTC(), HardExpires: r.HardExpiresAt.UTC(),
		VersionID: r.VersionID, ETag: r.ETag,
		Attested:   checksum(r.AttestedAlgorithm, r.AttestedType, r.AttestedValue),
		ReasonCode: models.Code(r.ReasonCode), Reason: r.Reason, Traceparent: r.Traceparent,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		CompletedAt: timeOf(r.CompletedAt), ClosedAt: timeOf(r.ClosedAt),
	}
}

type fileRow struct {
	ID, Tenant, Owner, Collection, Name            string
	Size, PartSize                                 int64
	ContentType                                    string
	Metadata                                       []byte
	State                                          string
	ChecksumAlgorithm, ChecksumType, ChecksumValue string
	Declared                                       bool
	VersionID                                      string
	ETag                                           string `gorm:"column:etag"`
	UploadID, ParentID                             string
	Guarded                                        bool
	ReasonCode, Reason                             string
	CreatedAt, UpdatedAt                           time.Time
	ActivatedAt, DeletedAt                         *time.Time
}

func (r *fileRow) model() models.File {
	return models.File{
		ID: models.FileID(r.ID), Tenant: models.Tenant(r.Tenant), Owner: models.Owner(r.Owner),
		Collection: r.Collection, Name: r.Name, Size: r.Size, PartSize: r.PartSize, ContentType: r.ContentType,
		Metadata: json.RawMessage(r.Metadata), State: models.FileState(r.State),
		Checksum: checksum(r.ChecksumAlgorithm, r.ChecksumType, r.ChecksumValue), Declared: r.Declared,
		VersionID: r.VersionID, ETag: r.ETag, UploadID: models.UploadID(r.UploadID), Parent: models.FileID(r.ParentID), Guarded: r.Guarded,
		ReasonCode: models.Code(r.ReasonCode), Reason: r.Reason,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		ActivatedAt: timeOf(r.ActivatedAt), DeletedAt: timeOf(r.DeletedAt),
	}
}

// bothRows are an upload and its file.
type bothRows struct {
	Upload uploadRow `gorm:"embedded"`
	File   fileRow   `gorm:"embedded;embeddedPrefix:f_"`
}

type replicaRow struct {
	ID, FileID, Store, Key string
	IsPrimary              bool
	State                  string
	Size                   int64
	VersionID              string
	ETag                   string `gorm:"column:etag"`
	CreatedAt, UpdatedAt   time.Time
}

func (r *replicaRow) model() models.Replica {
	return models.Replica{
		ID: models.ReplicaID(r.ID), FileID: models.FileID(r.FileID), Store: models.StoreName(r.Store), Key: r.Key,
		Primary: r.IsPrimary, State: models.ReplicaState(r.State), Size: r.Size, VersionID: r.VersionID, ETag: r.ETag,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
}

func checksum(alg, typ, value string) models.Checksum {
	return models.Checksum{Algorithm: models.Algorithm(alg), Type: models.ChecksumType(typ), Value: value}
}
