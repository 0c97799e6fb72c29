package infra_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/cmd/berthd/config"

	"go.yaml.in/yaml/v3"
)

// object is a Kubernetes object, as far as it is looked at.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas, MaxUnavailable int
		Selector                 struct{ MatchLabels map[string]string }
		Strategy                 struct {
			RollingUpdate struct{ MaxUnavailable, MaxSurge int }
		}
		Template       struct{ Spec pod }
		PodSelector    struct{ MatchLabels map[string]string }
		PolicyTypes    []string
		ScaleTargetRef struct{ Name string }
	}
}

type pod struct {
	ServiceAccountName                               string
	AutomountServiceAccountToken, EnableServiceLinks *bool
	TerminationGracePeriodSeconds                    int
	SecurityContext                                  struct {
		RunAsNonRoot   bool
		RunAsUser      int
		SeccompProfile struct{ Type string }
	}
	Containers []struct {
		Name, Image                                 string
		Args                                        []string
		StartupProbe, ReadinessProbe, LivenessProbe *struct {
			HTTPGet struct{ Path string } `yaml:"httpGet"`
		}
		Resources       struct{ Requests, Limits map[string]string }
		SecurityContext struct {
			AllowPrivilegeEscalation *bool
			ReadOnlyRootFilesystem   bool
			Capabilities             struct{ Drop []string }
		}
		Env []struct {
			Name, Value string
		}
	}
}

// objects are all in the folder. YAML's names are Kubernetes's: the keys are folded.
func objects(t *testing.T) []object {
	t.Helper()
	paths, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []object
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(b))
		for {
			var any map[string]any
			err := d.Decode(&any)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			j, err := json.Marshal(any) // whose reader takes names in any case
			if err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			var o object
			if err := json.Unmarshal(j, &o); err != nil {
				var kind struct{ Kind string }
				if json.Unmarshal(j, &kind) != nil || kind.Kind != "Kustomization" && kind.Kind != "Service" {
					t.Fatalf("%s: %v", p, err)
				}
				o = object{Kind: kind.Kind}
			}
			out = append(out, o)
		}
	}
	return out
}

// faults lists what a pod lacks of what every one must have.
func faults(p pod, probes bool) (out []string) {
	must := func(ok bool, what string) {
		if !ok {
			out = append(out, what)
		}
	}
	must(p.SecurityContext.RunAsNonRoot && p.SecurityContext.RunAsUser == 65532, "runs as root, or as another user than the image's")
	must(p.SecurityContext.SeccompProfile.Type == "RuntimeDefault", "has no seccomp profile")
	must(p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken, "holds a token of the cluster")
	must(p.EnableServiceLinks != nil && !*p.EnableServiceLinks, "takes BERTH_ variables from the Service called berth")
	must(len(p.Containers) == 1, "has not one container")
	for _, c := range p.Containers {
		s := c.SecurityContext
		must(s.ReadOnlyRootFilesystem, "can write to its root")
		must(s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation, "can gain rights")
		must(slices.Equal(s.Capabilities.Drop, []string{"ALL"}), "has capabilities")
		must(c.Resources.Requests["cpu"] != "" && c.Resources.Requests["memory"] != "" && c.Resources.Limits["memory"] != "", "has no requests or no limit of memory")
		must(!strings.HasSuffix(c.Image, ":latest") && strings.Contains(c.Image, ":"), "names no version of its image")
		for _, e := range c.Env {
			must(!strings.Contains(strings.ToLower(e.Name), "url") || e.Value == "", "has a secret in the manifest")
		}
		if probes {
			must(c.StartupProbe != nil && c.ReadinessProbe != nil && c.ReadinessProbe.HTTPGet.Path == "/readyz", "is not asked whether it is ready")
			must(c.LivenessProbe != nil && c.LivenessProbe.HTTPGet.Path == "/healthz", "is restarted for what a restart does not mend")
		}
	}
	return out
}

func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	all := objects(t)
	budgets, policies, roles := map[string]map[string]string{}, map[string]object{}, set{}
	for _, o := range all {
		switch o.Kind {
		case "PodDisruptionBudget":
			budgets[o.Metadata.Name] = o.Spec.Selector.MatchLabels
			if o.Spec.MaxUnavailable != 1 {
				t.Errorf("%s: maxUnavailable %d", o.Metadata.Name, o.Spec.MaxUnavailable)
			}
		case "NetworkPolicy":
			policies[o.Metadata.Name] = o
		}
	}
	for _, o := range all {
		p := o.Spec.Template.Spec
		switch o.Kind {
		case "Job":
			for _, f := range faults(p, false) {
				t.Errorf("%s %s", o.Metadata.Name, f)
			}
		case "Deployment":
			for _, f := range faults(p, true) {
				t.Errorf("%s %s", o.Metadata.Name, f)
			}
			role := strings.TrimPrefix(o.Metadata.Name, "berth-")
			roles.add(role)
			if !slices.Equal(p.Containers[0].Args, []string{"serve", "--role", role}) {
				t.Errorf("%s runs %v", o.Metadata.Name, p.Containers[0].Args)
			}
			if p.ServiceAccountName != o.Metadata.Name {
				t.Errorf("%s shares the account %q", o.Metadata.Name, p.ServiceAccountName)
			}
			// With the role api, berthd goes on answering for 5 s by default, and ends within 15 s after that.
			if p.TerminationGracePeriodSeconds < 25 {
				t.Errorf("%s is killed after %d s", o.Metadata.Name, p.TerminationGracePeriodSeconds)
			}
			if o.Spec.Replicas < 2 || o.Spec.Strategy.RollingUpdate.MaxUnavailable != 0 || o.Spec.Strategy.RollingUpdate.MaxSurge < 1 {
				t.Errorf("%s: a rollout leaves less than there was", o.Metadata.Name)
			}
			if b := budgets[o.Metadata.Name]; b["app.kubernetes.io/component"] != role || o.Spec.Selector.MatchLabels["app.kubernetes.io/component"] != role {
				t.Errorf("%s has no budget of its own: %v", o.Metadata.Name, b)
			}
		case "HorizontalPodAutoscaler":
			if !strings.HasPrefix(o.Spec.ScaleTargetRef.Name, "berth-") {
				t.Errorf("%s scales %q", o.Metadata.Name, o.Spec.ScaleTargetRef.Name)
			}
		}
	}
	want := set{}
	for _, r := range config.Roles {
		want.add(string(r))
	}
	same(t, "deployments", roles, want)
	deny := policies["berth-default-deny"].Spec
	if len(deny.PolicyTypes) != 2 || len(deny.PodSelector.MatchLabels) != 0 || len(policies) < 3 {
		t.Errorf("what no policy allows is not denied: %+v", deny)
	}
	if got := faults(pod{}, true); len(got) < 5 {
		t.Errorf("a pod without anything has only these faults: %q", got)
	}
}

// load reads a configuration as berthd does.
func load(t *testing.T, text string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigurationsAreTaken(t *testing.T) {
	for _, e := range os.Environ() { // a shell that has read .dev/env
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "BERTH_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("BERTH_DATABASE_URL", "postgres://berth@db/berth")
	n := 0
	for _, o := range objects(t) {
		if text := o.Data["berth.yaml"]; text != "" {
			n++
			load(t, text)
		}
	}
	b, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	got := load(t, c.Configs["berth"].Content)
	if n != 1 || got.Stores["main"].PublicEndpoint != "http://localhost:7070" {
		t.Errorf("%d configurations in the manifests; compose's %s", n, got)
	}
}

type compose struct {
	Services map[string]struct {
		Image, User string
		Build       *struct{ Dockerfile, Target string }
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		SecurityOpt []string `yaml:"security_opt"`
		Ports       []string
		Command     any
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Environment map[string]string
	}
	Configs map[string]struct{ Content string }
}

func TestCompose(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	docker, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range c.Services {
		if strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":") {
			t.Errorf("%s names no version of %q", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s is open to the network: its secrets are examples", name)
			}
		}
		for on := range s.DependsOn {
			if _, ok := c.Services[on]; !ok {
				t.Errorf("%s waits for %s, which is not there", name, on)
			}
		}
		if s.Build == nil {
			continue
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.SecurityOpt) == 0 {
			t.Errorf("%s can write to its root, or gain rights", name)
		}
		if !strings.Contains(string(docker), " AS "+s.Build.Target+"\n") {
			t.Errorf("%s is built as %q, which the Dockerfile does not make", name, s.Build.Target)
		}
	}
	for _, name := range []string{"postgres", "s3", "sqs", "bridge", "migrate", "berthd"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestTheImageHoldsBerthdAlone(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	stages := strings.Split(text, "\nFROM ")
	last := stages[len(stages)-1]
	for what, re := range map[string]string{
		"nothing below it": `^scratch AS berthd\n`,
		"no root":          `\nUSER 65532:65532\n`,
		"TLS":              `ca-certificates\.crt`,
		"one program":      `\nENTRYPOINT \["/berthd"\]\n`,
		"a place for an inventory under a read-only root": `\nVOLUME \["/tmp"\]\n`,
	} {
		if !regexp.MustCompile(re).MatchString(last) {
			t.Errorf("the image has not: %s", what)
		}
	}
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "-buildid=", "-mod=readonly", "go mod verify"} {
		if !strings.Contains(stages[1], flag) {
			t.Errorf("the build is not reproducible: no %s", flag)
		}
	}
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))
	if version == nil || !strings.Contains(text, "golang:"+version[1]) {
		t.Errorf("the image is built with another Go than go.mod's %v", version)
	}
	if strings.Contains(last, "COPY . ") || strings.Contains(last, "COPY --from=build /src") {
		t.Error("the sources are in the image")
	}
}

// A committed file that the build does not see makes the tree a changed one to git: the
// version says so, and the bytes are not those that .ci/reproducible compares.
func TestTheImageIsBuiltFromAllThatIsCommitted(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(root + "/.git"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("these sources are no clone: nothing says what is committed")
	}
	cmd := exec.CommandContext(t.Context(), "git", "ls-files")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	b, err := os.ReadFile(root + "/.dockerignore")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for line := range strings.Lines(string(b)) {
		pattern := strings.TrimSpace(line)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		if left := excluded(t, pattern, files); len(left) > 0 {
			t.Errorf("%s keeps %s, and %d files more, from the build", pattern, left[0], len(left)-1)
		}
	}
	if got := excluded(t, "infra/terraform", files); len(got) < 10 {
		t.Errorf("the test does not see what a pattern keeps away: %q", got)
	}
}

// excluded are the files that a pattern of .dockerignore keeps away, themselves or by a folder above.
func excluded(t *testing.T, pattern string, files []string) []string {
	t.Helper()
	name, anywhere := strings.CutPrefix(pattern, "**/")
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		segments := strings.Split(f, "/")
		for from := range segments {
			for to := from + 1; to <= len(segments); to++ {
				ok, err := path.Match(name, strings.Join(segments[from:to], "/"))
				if err != nil {
					t.Fatal(pattern, err)
				}
				if ok {
					return false
				}
			}
			if !anywhere {
				break
			}
		}
		return true
	})
}
