// Package infra_test holds what is deployed against the code: what each role may do
// against the calls that its code makes, CORS against what clients read, alarms and
// dashboards against the metrics, manifests against what they promise.
package infra_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/cmd/berthd/doctor"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const root = ".."

type set map[string]bool

func (s set) add(names ...string) {
	for _, n := range names {
		s[n] = true
	}
}

func (s set) list() []string { return slices.Sorted(maps.Keys(s)) }

// parse reads the Go files of a folder, without their tests.
func parse(t *testing.T, dir string, skip ...string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", dir, err)
	}
	var out []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") || slices.Contains(skip, filepath.Base(p)) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// calls gives each call of a selector below n: the last name before the dot, the name after it, the arguments.
func calls(n ast.Node, each func(on, name string, args []ast.Expr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			switch f := c.Fun.(type) {
			case *ast.SelectorExpr:
				each(lastName(f.X), f.Sel.Name, c.Args)
			case *ast.Ident:
				each("", f.Name, c.Args)
			}
		}
		return true
	})
}

func lastName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// reach are the functions that can be come to from the starts, by name. Calls of the
// database (records) are left out: its methods share names with the use cases.
func reach(files []*ast.File, starts []string, seen func(on, name string, args []ast.Expr)) set {
	bodies := map[string][]*ast.FuncDecl{}
	for _, f := range files {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Body != nil {
				bodies[fd.Name.Name] = append(bodies[fd.Name.Name], fd)
			}
		}
	}
	done := set{}
	for todo := slices.Clone(starts); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if done[name] {
			continue
		}
		done.add(name)
		for _, fd := range bodies[name] {
			calls(fd.Body, func(on, name string, args []ast.Expr) {
				if on == "records" || on == "models" {
					return
				}
				if seen != nil {
					seen(on, name, args)
				}
				todo = append(todo, name)
			})
		}
	}
	return done
}

// presigned are the requests that the adapter signs for others to send.
var presigned = map[string]string{"PresignParts": "UploadPart", "PresignPut": "PutObject", "PresignPost": "PostObject", "PresignGet": "GetObject"}

// notS3 are the adapter's methods that lead to no request.
var notS3 = []string{"Name", "Bucket", "Origin", "CredentialLife"}

// adapter says which S3 operations each method of objects.Store leads to.
func adapter(t *testing.T) map[string]set {
	t.Helper()
	files := parse(t, "controlplane/objects")
	out := map[string]set{}
	for _, f := range files {
		for _, d := range f.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok || fd.Recv == nil || !fd.Name.IsExported() || !strings.Contains(fmt.Sprint(fd.Recv.List[0].Type), "Store") {
				continue
			}
			ops := set{}
			reach(files, []string{fd.Name.Name}, func(on, name string, _ []ast.Expr) {
				if on == "client" {
					ops.add(name)
				}
			})
			if op := presigned[fd.Name.Name]; op != "" {
				ops.add(op)
			}
			if len(ops) == 0 && !slices.Contains(notS3, fd.Name.Name) {
				t.Errorf("objects.Store.%s leads to no S3 operation that this test sees; say in presigned or notS3 what it does", fd.Name.Name)
			}
			out[fd.Name.Name] = ops
		}
	}
	return out
}

// operations says which S3 operations each role's code makes, or signs for others.
func operations(t *testing.T) map[string]set {
	t.Helper()
	methods := adapter(t)
	out := map[string]set{"api": {}, "events": {}, "worker": {}, "operator": {}}
	use := func(role string) func(string, string, []ast.Expr) {
		return func(_, name string, _ []ast.Expr) { out[role].add(methods[name].list()...) }
	}
	cases := parse(t, "controlplane")
	var api []string
	for _, f := range cases {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Recv != nil && fd.Name.IsExported() && fd.Name.Name != "Repair" {
				api = append(api, fd.Name.Name)
			}
		}
	}
	reach(cases, api, use("api")) // Settle too: webhooks come to the API
	reach(cases, []string{"Settle"}, use("events"))
	reach(cases, []string{"Repair"}, use("worker"))
	for _, dir := range []string{"controlplane/worker", "controlplane/reconcile", "cmd/berthd"} {
		for _, f := range parse(t, dir, "doctor.go") {
			calls(f, func(on, name string, args []ast.Expr) {
				if name == "Inventory" {
					return // read by hand only: the daily run gives no manifest. Its rights are the inventory's own
				}
				use("worker")(on, name, args)
			})
		}
	}
	for _, dir := range []string{"controlplane/reconcile", "cmd/berthd/doctor"} {
		for _, f := range parse(t, dir) {
			calls(f, func(on, name string, args []ast.Expr) {
				if on == "S3" {
					out["operator"].add(name)
				}
				use("operator")(on, name, args)
			})
		}
	}
	return out
}

// needs are the rights that an operation takes, by what they are on. Source: the S3 API
// reference's "Permissions" of each operation, as in the service authorization reference.
type needs struct{ object, bucket, listing, key []string }

var s3Needs = map[string]needs{
	"PutObject":               {object: []string{"s3:PutObject"}, key: []string{"kms:GenerateDataKey"}},
	"PostObject":              {object: []string{"s3:PutObject"}, key: []string{"kms:GenerateDataKey"}},
	"CreateMultipartUpload":   {object: []string{"s3:PutObject"}, key: []string{"kms:GenerateDataKey", "kms:Decrypt"}},
	"UploadPart":              {object: []string{"s3:PutObject"}, key: []string{"kms:GenerateDataKey", "kms:Decrypt"}},
	"CompleteMultipartUpload": {object: []string{"s3:PutObject"}, key: []string{"kms:Decrypt"}},
	"UploadPartCopy":          {object: []string{"s3:PutObject", "s3:GetObject", "s3:GetObjectVersion"}, key: []string{"kms:GenerateDataKey", "kms:Decrypt"}},
	"CopyObject":              {object: []string{"s3:PutObject", "s3:GetObject", "s3:GetObjectVersion"}, key: []string{"kms:GenerateDataKey", "kms:Decrypt"}},
	"AbortMultipartUpload":    {object: []string{"s3:AbortMultipartUpload"}},
	"ListParts":               {object: []string{"s3:ListMultipartUploadParts"}},
	"GetObject":               {object: []string{"s3:GetObject", "s3:GetObjectVersion"}, key: []string{"kms:Decrypt"}},
	// Without s3:ListBucket what is missing is answered 403.
	"HeadObject":                         {object: []string{"s3:GetObject", "s3:GetObjectVersion"}, bucket: []string{"s3:ListBucket"}, key: []string{"kms:Decrypt"}},
	"DeleteObjects":                      {object: []string{"s3:DeleteObject", "s3:DeleteObjectVersion"}},
	"ListMultipartUploads":               {bucket: []string{"s3:ListBucketMultipartUploads"}},
	"ListObjectVersions":                 {listing: []string{"s3:ListBucketVersions"}},
	"HeadBucket":                         {bucket: []string{"s3:ListBucket"}},
	"GetBucketVersioning":                {bucket: []string{"s3:GetBucketVersioning"}},
	"GetObjectLockConfiguration":         {bucket: []string{"s3:GetBucketObjectLockConfiguration"}},
	"GetBucketCors":                      {bucket: []string{"s3:GetBucketCORS"}},
	"GetBucketLifecycleConfiguration":    {bucket: []string{"s3:GetLifecycleConfiguration"}},
	"GetBucketNotificationConfiguration": {bucket: []string{"s3:GetBucketNotification"}},
}

// locals are the literal values of a module's locals.
func locals(t *testing.T, module string) map[string]cty.Value {
	t.Helper()
	out := map[string]cty.Value{}
	for _, body := range module_(t, module) {
		for _, b := range body.Blocks {
			if b.Type != "locals" {
				continue
			}
			for name, a := range b.Body.Attributes {
				if v, diags := a.Expr.Value(nil); !diags.HasErrors() {
					out[name] = v
				}
			}
		}
	}
	return out
}

// module_ are the bodies of a module's files.
func module_(t *testing.T, module string) map[string]*hclsyntax.Body {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("terraform/modules", module, "*.tf"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", module, err)
	}
	out := map[string]*hclsyntax.Body{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f, diags := hclsyntax.ParseConfig(b, p, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		out[p] = f.Body.(*hclsyntax.Body)
	}
	return out
}

// resource is the one block of the type in the module.
func resource(t *testing.T, module, kind string) *hclsyntax.Body {
	t.Helper()
	for _, body := range module_(t, module) {
		for _, b := range body.Blocks {
			if b.Type == "resource" && b.Labels[0] == kind {
				return b.Body
			}
		}
	}
	t.Fatalf("module %s has no %s", module, kind)
	return nil
}

func blocks(b *hclsyntax.Body, kind string) []*hclsyntax.Body {
	var out []*hclsyntax.Body
	for _, x := range b.Blocks {
		if x.Type == kind {
			out = append(out, x.Body)
		}
	}
	return out
}

func words(t *testing.T, v cty.Value) set {
	t.Helper()
	out := set{}
	for it := v.ElementIterator(); it.Next(); {
		_, w := it.Element()
		out.add(w.AsString())
	}
	return out
}

func literal(t *testing.T, b *hclsyntax.Body, attribute string) cty.Value {
	t.Helper()
	a := b.Attributes[attribute]
	if a == nil {
		t.Fatalf("no %s", attribute)
	}
	v, diags := a.Expr.Value(nil)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return v
}

// same fails on rights that are missing and on rights that nothing needs.
func same(t *testing.T, what string, given, needed set) {
	t.Helper()
	for _, d := range differ(given, needed) {
		t.Errorf("%s: %s", what, d)
	}
}

func differ(given, needed set) (out []string) {
	for _, a := range needed.list() {
		if !given[a] {
			out = append(out, "the code needs "+a+", and may not")
		}
	}
	for _, a := range given.list() {
		if !needed[a] {
			out = append(out, "may "+a+", and no code needs it")
		}
	}
	return out
}

// What the comparison is for, it finds.
func TestDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	a, b := set{"s3:GetObject": true, "s3:PutObject": true}, set{"s3:GetObject": true, "s3:DeleteObject": true}
	if got := differ(a, b); len(got) != 2 || !strings.Contains(got[0], "needs s3:DeleteObject") || !strings.Contains(got[1], "may s3:PutObject") {
		t.Errorf("%q", got)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		func (s *Service) In() { s.deeper() }
		func (s *Service) deeper() { s.records.Head(); st.Peek() }
		func (s *Service) Aside() { st.DeleteVersions() }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := set{}
	reach([]*ast.File{f}, []string{"In"}, func(_, name string, _ []ast.Expr) { seen.add(name) })
	if got := strings.Join(seen.list(), " "); got != "Peek deeper" {
		t.Errorf("from In: %s", got)
	}
}

func TestEachRoleMayDoInTheBucketWhatItsCodeDoes(t *testing.T) {
	t.Parallel()
	ops := operations(t)
	if !ops["api"]["CompleteMultipartUpload"] || !ops["worker"]["DeleteObjects"] || !ops["events"]["HeadObject"] || !ops["operator"]["GetBucketCors"] {
		t.Fatalf("the test does not see the calls: %v", ops)
	}
	if ops["events"]["DeleteObjects"] || ops["api"]["DeleteObjects"] {
		t.Error("only the worker and the operator delete")
	}
	have := locals(t, "bucket")
	for role, made := range ops {
		object, bucket, listing, key := set{}, set{}, set{}, set{}
		for op := range made {
			n, ok := s3Needs[op]
			if !ok {
				t.Errorf("%s: what right %s takes is not known; say it in s3Needs", role, op)
			}
			object.add(n.object...)
			bucket.add(n.bucket...)
			listing.add(n.listing...)
			key.add(n.key...)
		}
		for local, needed := range map[string]set{"object_actions": object, "bucket_actions": bucket, "listing_actions": listing, "key_actions": key} {
			v, ok := have[local]
			if !ok || !v.Type().HasAttribute(role) {
				t.Fatalf("module bucket: locals have no %s.%s", local, role)
			}
			same(t, fmt.Sprintf("module bucket: %s.%s", local, role), words(t, v.GetAttr(role)), needed)
		}
	}
}

// sqsNeeds are the rights of SQS operations. Batches need that of one.
var sqsNeeds = map[string][]string{
	"ReceiveMessage":               {"sqs:ReceiveMessage"},
	"DeleteMessage":                {"sqs:DeleteMessage"},
	"DeleteMessageBatch":           {"sqs:DeleteMessage"},
	"ChangeMessageVisibilityBatch": {"sqs:ChangeMessageVisibility"},
	"GetQueueAttributes":           {"sqs:GetQueueAttributes"},
	"GetQueueUrl":                  {"sqs:GetQueueUrl"},
	"SendMessage":                  {"sqs:SendMessage"},
	"SendMessageBatch":             {"sqs:SendMessage"},
	// Moves by itself what it may receive, delete and see.
	"StartMessageMoveTask": {"sqs:StartMessageMoveTask", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
}

func TestEachRoleMayDoWithTheQueueWhatItsCodeDoes(t *testing.T) {
	t.Parallel()
	queue := map[string]set{"api": {}, "events": {}, "worker": {}, "operator": {}}
	dlq := map[string]set{"api": {}, "events": {}, "worker": {}, "operator": {}}
	outbox := set{}
	need := func(to set, op string) {
		rights, ok := sqsNeeds[op]
		if !ok {
			t.Errorf("what right %s takes is not known; say it in sqsNeeds", op)
		}
		to.add(rights...)
	}
	reap := map[string]set{"api": {}, "events": {}, "worker": {}, "operator": {}}
	for _, f := range parse(t, "events", "dlq.go", "sender.go", "reap.go") {
		calls(f, func(on, name string, _ []ast.Expr) {
			if on == "Queue" {
				need(queue["events"], name)
				need(reap["worker"], name) // the same consumer reads the queue of due deletions
			}
		})
	}
	sends := 0
	for _, f := range parse(t, "events", "dlq.go", "sender.go", "consumer.go", "hold.go") {
		calls(f, func(on, name string, _ []ast.Expr) {
			if on == "Queue" {
				need(reap["worker"], name)
				sends++
			}
		})
	}
	for _, f := range parse(t, "cmd/berthd/doctor") {
		calls(f, func(on, name string, _ []ast.Expr) {
			if on == "Client" {
				need(queue["operator"], name)
			}
		})
	}
	text, err := os.ReadFile(root + "/events/dlq.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "dlq.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	calls(f, func(on, name string, args []ast.Expr) {
		if on != "client" {
			return
		}
		said := ""
		for _, a := range args {
			said += string(text[fset.Position(a.Pos()).Offset:fset.Position(a.End()).Offset])
		}
		switch {
		case strings.Contains(said, "d.main"), strings.Contains(said, "&queueURL"):
			need(queue["operator"], name)
			need(reap["operator"], name)
		default:
			need(dlq["operator"], name)
		}
		if name == "StartMessageMoveTask" { // to where the letters came from
			queue["operator"].add("sqs:SendMessage")
			reap["operator"].add("sqs:SendMessage")
		}
	})
	for _, f := range parse(t, "events") {
		calls(f, func(on, name string, _ []ast.Expr) {
			if on == "Topic" {
				outbox.add("sns:" + name)
			}
		})
		if f.Name.Name == "events" {
			for _, d := range f.Decls {
				fd, ok := d.(*ast.FuncDecl)
				if !ok || fd.Recv == nil || !strings.Contains(fmt.Sprint(fd.Recv.List[0].Type), "SQSTarget") {
					continue
				}
				calls(fd, func(on, name string, _ []ast.Expr) {
					if on == "Queue" {
						outbox.add("sqs:" + name)
					}
				})
			}
		}
	}
	if len(queue["events"]) != 3 || len(dlq["operator"]) < 4 || len(outbox) != 2 || sends != 1 {
		t.Fatalf("the test does not see the calls: %v, %v, %v, %d", queue, dlq, outbox, sends)
	}
	have := locals(t, "events")
	for role := range queue {
		same(t, "module events: queue_actions."+role, words(t, have["queue_actions"].GetAttr(role)), queue[role])
		same(t, "module events: reap_actions."+role, words(t, have["reap_actions"].GetAttr(role)), reap[role])
		same(t, "module events: dlq_actions."+role, words(t, have["dlq_actions"].GetAttr(role)), dlq[role])
	}
	given := set{}
	for path, body := range module_(t, "service") {
		if filepath.Base(path) != "iam.tf" {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, bl := range body.Blocks {
			if bl.Type == "locals" {
				r := bl.Body.Attributes["outbox_statements"].Expr.Range()
				given.add(regexp.MustCompile(`s[qn]s:[A-Za-z]+`).FindAllString(string(b[r.Start.Byte:r.End.Byte]), -1)...)
			}
		}
	}
	delete(given, "sqs:eu") // ARNs are none
	same(t, "module service: outbox_statements", given, outbox)
}

var (
	readInGo = regexp.MustCompile(`Header\.Get\("([^"]+)"\)`)
	readInJS = regexp.MustCompile(`(?:getResponseHeader|headers\.get)\(\s*['"]([^'"]+)['"]`)
)

// read are the headers of S3's answers that clients look at.
func read(t *testing.T) set {
	t.Helper()
	out := set{}
	look := func(dir, suffix string, re *regexp.Regexp) {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "test") {
				return fs.SkipDir
			}
			if !strings.HasSuffix(path, suffix) || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range re.FindAllStringSubmatch(string(b), -1) {
				if name := strings.ToLower(m[1]); name == "etag" || strings.HasPrefix(name, "x-amz-") {
					out.add(name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look("client", ".go", readInGo)
	look("web", ".js", readInJS)
	look("web", ".mjs", readInJS)
	for _, h := range doctor.CORSExposed { // Uppy's clients, which are not ours, read the ETag
		out.add(strings.ToLower(h))
	}
	return out
}

func TestCORSIsWhatClientsNeed(t *testing.T) {
	t.Parallel()
	rules := blocks(resource(t, "bucket", "aws_s3_bucket_cors_configuration"), "cors_rule")
	if len(rules) != 1 {
		t.Fatalf("%d rules", len(rules))
	}
	exposed := set{}
	for h := range words(t, literal(t, rules[0], "expose_headers")) {
		exposed.add(strings.ToLower(h))
		if strings.Contains(h, "*") {
			t.Errorf("%s: browsers and stores differ about patterns in what is exposed", h)
		}
	}
	for _, h := range read(t).list() {
		if !exposed[h] {
			t.Errorf("clients read %s, and the bucket does not expose it", h)
		}
	}
	allowed := words(t, literal(t, rules[0], "allowed_methods"))
	for _, m := range doctor.CORSMethods {
		if !allowed[m] {
			t.Errorf("the method %s is not allowed", m)
		}
	}
	headers := words(t, literal(t, rules[0], "allowed_headers")).list()
	for _, h := range doctor.CORSAllowed {
		if !slices.ContainsFunc(headers, func(p string) bool {
			head, star := strings.CutSuffix(p, "*")
			return p == h || star && strings.HasPrefix(h, head)
		}) {
			t.Errorf("the header %s may not be sent", h)
		}
	}
}

func TestLifecycleCoversThePrefixAndDeletesNoFile(t *testing.T) {
	t.Parallel()
	aborts, expires := false, false
	for _, r := range blocks(resource(t, "bucket", "aws_s3_bucket_lifecycle_configuration"), "rule") {
		id := literal(t, r, "id").AsString()
		if literal(t, r, "status").AsString() != "Enabled" {
			t.Errorf("%s is not enabled", id)
		}
		filter := blocks(r, "filter")
		if len(filter) != 1 || len(filter[0].Attributes) != 1 || len(filter[0].Blocks) != 0 {
			t.Errorf("%s: its filter is not the prefix alone", id)
			continue
		}
		if v := filter[0].Attributes["prefix"].Expr.Variables(); len(v) != 1 || v[0].RootName() != "var" || v[0][1].(hcl.TraverseAttr).Name != "prefix" {
			t.Errorf("%s: its filter is not var.prefix", id)
		}
		aborts = aborts || len(blocks(r, "abort_incomplete_multipart_upload")) == 1
		expires = expires || len(blocks(r, "noncurrent_version_expiration")) == 1
		for _, e := range blocks(r, "expiration") {
			for name := range e.Attributes {
				if name != "expired_object_delete_marker" {
					t.Errorf("%s: expiration.%s deletes files", id, name)
				}
			}
		}
	}
	if !aborts || !expires {
		t.Errorf("aborts incomplete uploads: %v, expires noncurrent versions: %v", aborts, expires)
	}
}

// What the doctor tells people to write must be there to be written.
func TestTheDoctorNamesWhatTheModulesHave(t *testing.T) {
	t.Parallel()
	module := regexp.MustCompile(`module "([a-z]+)"`)
	variable := regexp.MustCompile(`module "([a-z]+)" \{ ([a-z_]+) =`)
	output := regexp.MustCompile(`module "([a-z]+)"[^;]*output ([a-z_]+)`)
	seen := 0
	for _, f := range parse(t, "cmd/berthd/doctor") {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			for _, m := range module.FindAllStringSubmatch(text, -1) {
				seen++
				module_(t, m[1])
			}
			for kind, found := range map[string][][]string{"variable": variable.FindAllStringSubmatch(text, -1), "output": output.FindAllStringSubmatch(text, -1)} {
				for _, m := range found {
					if !declares(t, m[1], kind, m[2]) {
						t.Errorf("%q: module %s has no %s %s", text, m[1], kind, m[2])
					}
				}
			}
			return true
		})
	}
	if seen < 10 {
		t.Errorf("only %d modules are named: the test looks at the wrong place", seen)
	}
}

func declares(t *testing.T, module, kind, name string) bool {
	t.Helper()
	for _, body := range module_(t, module) {
		for _, b := range body.Blocks {
			if b.Type == kind && b.Labels[0] == name {
				return true
			}
		}
	}
	return false
}

// Every variable and output says what it is; every variable has a type.
func TestModulesAreDescribed(t *testing.T) {
	t.Parallel()
	for _, m := range []string{"bucket", "events", "service", "alarms"} {
		if found, err := filepath.Glob(filepath.Join("terraform/modules", m, "tests/*.tftest.hcl")); err != nil || len(found) == 0 {
			t.Errorf("module %s has no test", m)
		}
		for _, body := range module_(t, m) {
			for _, b := range body.Blocks {
				if b.Type != "variable" && b.Type != "output" {
					continue
				}
				if b.Body.Attributes["description"] == nil {
					t.Errorf("module %s: %s %s has no description", m, b.Type, b.Labels[0])
				}
				if b.Type == "variable" && b.Body.Attributes["type"] == nil {
					t.Errorf("module %s: variable %s has no type", m, b.Labels[0])
				}
			}
		}
	}
}
