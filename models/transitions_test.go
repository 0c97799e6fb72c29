package models

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// edges lists a machine as "from>to", with "" for the outside.
func edges[S ~string](m Machine[S]) []string {
	var out []string
	for _, s := range m.Initial {
		out = append(out, ">"+string(s))
	}
	for from, next := range m.Next {
		for _, to := range next {
			out = append(out, string(from)+">"+string(to))
		}
		if len(next) == 0 {
			out = append(out, string(from)+">")
		}
	}
	slices.Sort(out)
	return out
}

func TestDrawingIsTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("STATES.md")
	if err != nil {
		t.Fatal(err)
	}
	arrow := regexp.MustCompile(`(?m)^ +(\S+) --> ([^\s:]+)`)
	drawn := map[string][]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		for _, m := range arrow.FindAllStringSubmatch(body, -1) {
			drawn[name] = append(drawn[name], strings.ReplaceAll(m[1]+">"+m[2], "[*]", ""))
		}
		slices.Sort(drawn[name])
	}
	for name, want := range map[string][]string{
		Uploads.Name: edges(Uploads), Files.Name: edges(Files), Replicas.Name: edges(Replicas), Tasks.Name: edges(Tasks), Outbox.Name: edges(Outbox),
	} {
		if !slices.Equal(drawn[name], want) {
			t.Errorf("%s: STATES.md draws\n%v\ntransitions.go says\n%v", name, drawn[name], want)
		}
	}
	if len(drawn) != 5 {
		t.Errorf("STATES.md draws %d machines", len(drawn))
	}
}

// Each state can be reached, and names only states that there are.
func TestMachinesAreWhole(t *testing.T) {
	t.Parallel()
	whole(t, Uploads)
	whole(t, Files)
	whole(t, Replicas)
	whole(t, Tasks)
	whole(t, Outbox)
}

func whole[S ~string](t *testing.T, m Machine[S]) {
	reached := map[S]bool{}
	todo := slices.Clone(m.Initial)
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		if reached[s] {
			continue
		}
		reached[s] = true
		next, known := m.Next[s]
		if !known {
			t.Errorf("%s: %s is not a state", m.Name, s)
		}
		todo = append(todo, next...)
	}
	for s := range m.Next {
		if !reached[s] {
			t.Errorf("%s: %s cannot be reached", m.Name, s)
		}
	}
}

func TestRulesOfTheContract(t *testing.T) {
	t.Parallel()
	for _, s := range []UploadState{UploadRejected, UploadAborted, UploadExpired, UploadCommitted} {
		if !Uploads.Ends(s) {
			t.Errorf("upload: something follows %s", s)
		}
	}
	for s := range Replicas.Next {
		if Replicas.May(s, ReplicaDeleted) != slices.Contains([]ReplicaState{ReplicaPending, ReplicaDeleting, ReplicaDeleteFailed}, s) {
			t.Errorf("replica: %s and deleted", s)
		}
	}
	// Only through preparing or processing, or out of blocked, does a file become active.
	if got := fmt.Sprint(Files.From(FileActive)); got != "[blocked preparing processing]" {
		t.Errorf("file: active from %s", got)
	}
	for s := range Replicas.Next {
		for _, next := range WayOut(s) {
			if !Replicas.May(s, next) {
				t.Errorf("the way out of %s goes to %s, which the table does not know", s, next)
			}
			s = next
		}
	}
}
