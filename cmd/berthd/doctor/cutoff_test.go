package doctor

import (
	"strings"
	"testing"
)

// What is kept of a body that broke off is as bad as what may become of it.
func TestJudgeCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object, part            int64
		unpinned, unpinnedParts []string
		want                    Status
		says                    string
	}{
		"nothing is kept":                {0, 0, []string{"a"}, []string{"a"}, OK, "leaves nothing behind"},
		"a part as announced":            {0, cutAnnounced, []string{"a", "b"}, []string{"b"}, Failure, "A file of b can become active"},
		"an object as announced":         {cutAnnounced, 0, []string{"a"}, []string{"a"}, Failure, "attests 1048576"},
		"parts of composites are told":   {cutSent, cutAnnounced, []string{"a"}, nil, Warning, "size nobody declared"},
		"its own length tells":           {cutSent, cutSent, []string{"a"}, []string{"a"}, Warning, "attests 262144"},
		"all collections sign":           {cutSent, cutAnnounced, nil, nil, OK, "all collections demand it"},
		"of an object half, of a part 0": {cutSent, 0, []string{"a"}, []string{"a"}, Warning, "others are rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &doctor{}
			d.judgeCutOff("cut-off body", &Store{Unpinned: c.unpinned, UnpinnedParts: c.unpinnedParts}, c.object, c.part)
			f := d.report.Findings[0]
			if len(d.report.Findings) != 1 || f.Status != c.want || !strings.Contains(f.Found, c.says) || (f.Status != OK) != strings.Contains(f.Mend, "checksum_required: true for the collections "+strings.Join(c.unpinned, ", ")+":") {
				t.Errorf("%+v", f)
			}
		})
	}
}
