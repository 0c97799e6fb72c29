package controlplane_test

import (
	"testing"

	"berth/controlplane"
	"berth/internal/stack"
	"berth/models"
)

// What a collection does not take at open it does not take as a new name either.
func TestRenameKeepsToTheExtensions(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	body := stack.Bytes(1, 100)
	v := open(t, s, "resume", 100, func(r *controlplane.OpenRequest) {
		r.Name, r.Checksum = "a.pdf", &models.Checksum{Value: models.SHA256.Sum(body)}
	})
	stack.MustSend(t, v.Parts[0], body)
	complete(t, s, v.ID)
	rename := func(name string) error {
		_, err := s.Service.Patch(t.Context(), stack.Caller("ann"), v.FileID, controlplane.PatchRequest{Name: &name})
		return err
	}
	for _, name := range []string{"a.exe", "a", "a.pdf.html"} {
		wantCode(t, rename(name), models.CodeTypeNotAllowed)
	}
	for _, name := range []string{"b.pdf", "b.DOCX"} {
		if err := rename(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The collection has changed its mind: the file keeps what it has.
	reload(t, s, "resume", func(c *models.Collection) { c.Extensions = []string{"txt"} })
	if err := rename("c.docx"); err != nil {
		t.Error(err)
	}
	wantCode(t, rename("c.pdf"), models.CodeTypeNotAllowed)
}
