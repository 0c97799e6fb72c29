package controlplane

import (
	"context"
	"encoding/base64"
	"slices"

	"berth/models"
)

// File shows one file of the caller's.
func (s *Service) File(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	if err := c.Require(models.ScopeRead); err != nil {
		return models.File{}, err
	}
	f, _, err := s.lookAt(ctx, c, id)
	return f, err
}

// whoever is the caller's tenant, to an admin, who must see what to block and unblock.
func whoever(c models.Caller) (models.Whose, bool) {
	return models.Whose{Tenant: c.Tenant, All: true}, admin(c) == nil
}

// lookAt finds a file of the caller's, and for an admin anybody's of the tenant that is
// blocked. All else of other owners is absent to admins too.
func (s *Service) lookAt(ctx context.Context, c models.Caller, id models.FileID) (models.File, models.Whose, error) {
	f, err := s.file(ctx, c, id)
	if all, ok := whoever(c); ok && models.ErrorCode(err) == models.CodeNotFound {
		other, failed := s.records.File(ctx, all, id)
		if failed != nil || other.State == models.FileBlocked {
			return other, all, failed
		}
	}
	return f, c.Whose(), err
}

// Files lists the caller's files, newest first.
func (s *Service) Files(ctx context.Context, c models.Caller, q FileQuery) (FilePage, error) {
	if err := c.Require(models.ScopeRead); err != nil {
		return FilePage{}, err
	}
	limit, err := pageLimit(q.Limit)
	if err != nil {
		return FilePage{}, err
	}
	if q.State != "" {
		if _, ok := models.Files.Next[q.State]; !ok {
			return FilePage{}, models.Errorf(models.CodeInvalidRequest, "state: there is no such state").With("field", "state")
		}
	}
	if g := c.Grant; g != nil {
		if g.Upload != "" || g.Derive != nil {
			return FilePage{}, models.Errorf(models.CodeForbidden, "the grant is for one upload")
		}
		if g.Collection != "" {
			if q.Collection != "" && q.Collection != g.Collection {
				return FilePage{}, nil
			}
			q.Collection = g.Collection
		}
	}
	before := models.FileID("")
	if q.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
		if err == nil {
			before, err = models.ParseFileID(string(raw))
		}
		if err != nil {
			return FilePage{}, models.Errorf(models.CodeInvalidRequest, "cursor: not one of ours").With("field", "cursor")
		}
	}
	whose := c.Whose()
	if q.All {
		if err := admin(c); err != nil {
			return FilePage{}, err
		}
		if q.State != models.FileBlocked {
			return FilePage{}, models.Errorf(models.CodeInvalidRequest, "all: is for the state blocked only").With("field", "all")
		}
		whose, _ = whoever(c)
	}
	files, err := s.records.Files(ctx, models.FileFilter{Whose: whose, Collection: q.Collection, State: q.State, Before: before, Limit: limit + 1})
	if err != nil {
		return FilePage{}, err
	}
	page := FilePage{Files: files}
	if len(files) > limit {
		page.Files = files[:limit]
		page.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(files[limit-1].ID))
	}
	return page, nil
}

func pageLimit(n int) (int, error) {
	switch {
	case n == 0:
		return 100, nil
	case n < 0 || n > 1000:
		return 0, models.Errorf(models.CodeInvalidRequest, "limit: is not between 1 and 1000").With("field", "limit")
	}
	return n, nil
}

// History reads a file's timeline, oldest first.
func (s *Service) History(ctx context.Context, c models.Caller, id models.FileID, cursor string, limit int) (HistoryPage, error) {
	if err := c.Require(models.ScopeRead); err != nil {
		return HistoryPage{}, err
	}
	_, whose, err := s.lookAt(ctx, c, id)
	if err != nil {
		return HistoryPage{}, err
	}
	limit, err = pageLimit(limit)
	if err != nil {
		return HistoryPage{}, err
	}
	entries, next, err := s.records.History(ctx, whose, id, cursor, limit)
	return HistoryPage{Entries: entries, NextCursor: next}, err
}

// Patch changes the name or the metadata of a file.
func (s *Service) Patch(ctx context.Context, c models.Caller, id models.FileID, req PatchRequest) (models.File, error) {
	if err := c.Require(models.ScopeUpload); err != nil {
		return models.File{}, err
	}
	f, err := s.file(ctx, c, id)
	if err != nil {
		return f, err
	}
	p := models.FilePatch{Now: s.utc()}
	if req.Name != nil {
		name, err := models.CleanName(*req.Name)
		if err != nil {
			return models.File{}, err
		}
		if err := s.renamable(f, name); err != nil {
			return models.File{}, err
		}
		p.Name = &name
	}
	if len(req.Metadata) > 0 {
		col := s.policy(f.Collection)
		if p.Metadata, err = metadata(req.Metadata, col.MaxMetadataBytes); err != nil {
			return models.File{}, err
		}
	}
	if p.Name == nil && p.Metadata == nil {
		return models.File{}, models.Errorf(models.CodeInvalidRequest, "send a name, or metadata")
	}
	return s.records.Patch(ctx, c.Whose(), id, p)
}

// renamable holds a new name against the collection. An extension that a file has already
// stays its own, whatever the collection takes by now; what a step derived has any.
func (s *Service) renamable(f models.File, name string) error {
	col := s.policy(f.Collection)
	ext := models.Extension(name)
	if len(col.Extensions) == 0 || f.Parent != "" || ext == models.Extension(f.Name) || slices.Contains(col.Extensions, ext) {
		return nil
	}
	return models.Errorf(models.CodeTypeNotAllowed, "the collection does not take files with this extension").With("extensions", col.Extensions)
}

// Delete makes a file unreadable at once and has its objects reaped. Repeated, it
// changes nothing.
func (s *Service) Delete(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	if err := c.Require(models.ScopeDelete); err != nil {
		return models.File{}, err
	}
	if _, err := s.file(ctx, c, id); err != nil {
		return models.File{}, err
	}
	return s.records.Delete(ctx, c.Whose(), id, c.Actor(), s.utc())
}

// Block makes an active file unreadable; Unblock undoes it. Both are for admins of the
// file's tenant, and repeated they change nothing.
func (s *Service) Block(ctx context.Context, c models.Caller, id models.FileID, reason string) (models.File, error) {
	return s.setBlocked(ctx, c, id, true, reason)
}

// Unblock is the opposite of Block.
func (s *Service) Unblock(ctx context.Context, c models.Caller, id models.FileID) (models.File, error) {
	return s.setBlocked(ctx, c, id, false, "")
}

func (s *Service) setBlocked(ctx context.Context, c models.Caller, id models.FileID, block bool, reason string) (models.File, error) {
	if err := admin(c); err != nil {
		return models.File{}, err
	}
	if len(reason) > 1000 {
		return models.File{}, models.Errorf(models.CodeInvalidRequest, "reason: is longer than 1000 bytes").With("field", "reason")
	}
	return s.records.SetBlocked(ctx, c.Tenant, id, block, reason, c.Actor(), s.utc())
}
