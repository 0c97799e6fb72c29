package controlplane_test

import (
	"testing"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// An admin sees what is to be unblocked, whoever's of the tenant; nobody else does, and the
// bytes are nobody's.
func TestAdminSeesBlockedFiles(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	v := open(t, s, "default", 10)
	stack.MustSend(t, v.Parts[0], stack.Bytes(1, 10))
	complete(t, s, v.ID)
	boss := stack.Caller("boss")
	if _, err := s.Service.Block(t.Context(), boss, v.FileID, "virus"); err != nil {
		t.Fatal(err)
	}
	page, err := s.Service.Files(t.Context(), boss, controlplane.FileQuery{State: models.FileBlocked, All: true})
	if err != nil || len(page.Files) != 1 || page.Files[0].ID != v.FileID {
		t.Errorf("listed %+v, %v", page.Files, err)
	}
	if f, err := s.Service.File(t.Context(), boss, v.FileID); err != nil || f.State != models.FileBlocked || f.Reason != "virus" {
		t.Errorf("shown %+v, %v", f, err)
	}
	if h, err := s.Service.History(t.Context(), boss, v.FileID, "", 0); err != nil || len(h.Entries) == 0 {
		t.Errorf("history %+v, %v", h, err)
	}
	if page, err := s.Service.Files(t.Context(), boss, controlplane.FileQuery{State: models.FileBlocked}); err != nil || len(page.Files) != 0 {
		t.Errorf("an admin's own: %+v, %v", page.Files, err)
	}
	if _, err := s.Service.ContentURL(t.Context(), boss, v.FileID); models.ErrorCode(err) == "" {
		t.Error("an admin reads what is blocked")
	}
	if _, err := s.Service.Files(t.Context(), boss, controlplane.FileQuery{All: true}); models.ErrorCode(err) != models.CodeInvalidRequest {
		t.Errorf("an admin lists all that is not blocked: %v", err)
	}
	bob := boss
	bob.Owner, bob.Scopes = "bob", []models.Scope{models.ScopeRead, models.ScopeUpload, models.ScopeDelete}
	elsewhere := boss
	elsewhere.Tenant = "other"
	granted := boss
	granted.Grant = &models.Grant{Collection: "default"}
	w := open(t, s, "default", 10)
	if _, err := s.Service.File(t.Context(), boss, w.FileID); models.ErrorCode(err) != models.CodeNotFound {
		t.Errorf("an admin is shown what is not blocked: %v", err)
	}
	for name, c := range map[string]models.Caller{"bob": bob, "elsewhere": elsewhere, "granted": granted} {
		if _, err := s.Service.File(t.Context(), c, v.FileID); models.ErrorCode(err) != models.CodeNotFound {
			t.Errorf("%s is shown it: %v", name, err)
		}
		if _, err := s.Service.History(t.Context(), c, v.FileID, "", 0); models.ErrorCode(err) != models.CodeNotFound {
			t.Errorf("%s sees its history: %v", name, err)
		}
		page, err := s.Service.Files(t.Context(), c, controlplane.FileQuery{State: models.FileBlocked, All: true})
		if name != "elsewhere" && models.ErrorCode(err) != models.CodeForbidden || len(page.Files) != 0 {
			t.Errorf("%s lists %+v, %v", name, page.Files, err)
		}
	}
}
