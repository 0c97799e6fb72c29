package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"

	"berth/client"
	"berth/client/wire"
	"berth/controlplane/httpapi"
	"berth/controlplane/store"
	"berth/internal/stack"
	"berth/internal/testkit"
	"berth/models"
)

// sqlClients is how many have a statement in flight on either side: berthd's pool, and
// pgbench's clients.
const sqlClients = 16

// BenchmarkFlowAgainstPgbench compares the rate of open → sign → complete → active, over
// HTTP and with S3's word, with that of the same SQL run by pgbench on the same server: the
// contract wants half of it. The statements and their values are taken from a run of the
// flow; the PUTs are not in the time.
func BenchmarkFlowAgainstPgbench(b *testing.B) {
	pgbench := pgbenchPath(b)
	const files, recorded, rounds = 1000, 1500, 5
	script := record(b, recorded)
	var flows, sqls, ratios []float64
	for range rounds {
		before := testkit.Processor()
		flow := flowRate(b, files)
		b.Logf("the flow: %.0f/s, processor a file: %s", flow, testkit.ProcessorSince(before, files))
		sql := script.rate(b, pgbench)
		b.Logf("its SQL: %.0f/s", sql)
		flows, sqls, ratios = append(flows, flow), append(sqls, sql), append(ratios, flow/sql)
	}
	b.ReportMetric(median(flows), "flows/s")
	b.ReportMetric(median(sqls), "pgbench/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
	if r := median(ratios); r < 0.5 {
		b.Errorf("the flow has %.2f of its SQL's rate, must have at least 0.5", r)
	}
}

func pgbenchPath(b *testing.B) string {
	b.Helper()
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(found) == 0 {
		b.Skip("there is no pgbench")
	}
	return found[len(found)-1]
}

const benchSecret = "a secret of thirty-two bytes, or more"

// api is the flow's door: a server on its own database, and a client of it.
type api struct {
	stack *stack.Stack
	c     *client.Client
	body  []byte
	sum   string
}

func serveAPI(b *testing.B, tracer pgx.QueryTracer) *api {
	b.Helper()
	s := stack.New(b)
	db, err := store.Open(b.Context(), s.DSN, store.Options{MaxConns: sqlClients, Tracer: tracer})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	auth, err := httpapi.NewVerifier(b.Context(), httpapi.TokenConfig{Secret: []byte(benchSecret)})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(httpapi.New(httpapi.Config{Service: s.NewService(b, db, s.Objects), Auth: auth, Log: slog.New(slog.DiscardHandler)}))
	b.Cleanup(server.Close)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "scope": "upload read", "exp": time.Now().Add(time.Hour).Unix()}).
		SignedString([]byte(benchSecret))
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: sqlClients}
	b.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(server.URL, token, client.WithHTTPClients(&http.Client{Transport: transport}, http.DefaultClient))
	if err != nil {
		b.Fatal(err)
	}
	body := stack.Bytes(7, 64)
	return &api{stack: s, c: c, body: body, sum: models.SHA256.Sum(body)}
}

// begin opens an upload and has its one part signed, pinned to its bytes.
func (a *api) begin(ctx context.Context) (id string, part wire.SignedPart, err error) {
	u, err := a.c.Open(ctx, wire.OpenRequest{Collection: "default", Name: "a.bin", Size: int64(len(a.body))})
	if err != nil {
		return "", part, err
	}
	signed, err := a.c.Sign(ctx, u.ID, wire.PartToSign{Number: 1, Checksum: a.sum})
	if err != nil {
		return "", part, err
	}
	return u.ID, signed.Parts[0], nil
}

func (a *api) send(ctx context.Context, p wire.SignedPart) error {
	status, err := stack.Send(ctx, stack.Signed(p), a.body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("put: %d", status)
	}
	return err
}

func (a *api) finish(ctx context.Context, id string) error {
	u, err := a.c.Complete(ctx, id, wire.CompleteRequest{})
	if err == nil && (u.File == nil || u.File.State != "active") {
		err = fmt.Errorf("%s is %s", id, u.State)
	}
	return err
}

// flowRate is how many flows a second pass, the PUTs apart.
func flowRate(b *testing.B, files int) float64 {
	b.Helper()
	a := serveAPI(b, nil)
	ids, parts := make([]string, files), make([]wire.SignedPart, files)
	side := func(do func(i int) error) time.Duration {
		begun := time.Now()
		var wg sync.WaitGroup
		for lane := range sqlClients {
			wg.Go(func() {
				for i := lane; i < files; i += sqlClients {
					if err := do(i); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(begun)
	}
	took := side(func(i int) (err error) {
		ids[i], parts[i], err = a.begin(b.Context())
		return err
	})
	side(func(i int) error { return a.send(b.Context(), parts[i]) })
	took += side(func(i int) error { return a.finish(b.Context(), ids[i]) })
	if b.Failed() {
		b.FailNow()
	}
	return float64(files) / took.Seconds()
}

// tape is what a session was told: the statements of one flow, and of each flow the values
// that not all of them have.
type tape struct {
	sql   string
	flows [][]string
}

// recorder is a tracer that keeps statements with their values.
type recorder struct {
	mu   sync.Mutex
	told []pgx.TraceQueryStartData
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(d.SQL, "-- ping") {
		r.mu.Lock()
		values := slices.DeleteFunc(slices.Clone(d.Args), func(v any) bool { // how the answer is wanted is no value
			_, byOID := v.(pgx.QueryResultFormatsByOID)
			_, formats := v.(pgx.QueryResultFormats)
			return byOID || formats
		})
		r.told = append(r.told, pgx.TraceQueryStartData{SQL: d.SQL, Args: values})
		r.mu.Unlock()
	}
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) take() []pgx.TraceQueryStartData {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

var placeholder = regexp.MustCompile(`\$(\d+)`)

// record runs flows one after the other and makes pgbench's script of them. What is the
// same in all of them is written into the statements; the rest are variables, which the
// script reads from a table, one row a flow.
func record(b *testing.B, n int) *tape {
	b.Helper()
	r := &recorder{}
	a := serveAPI(b, r)
	flows := make([][]pgx.TraceQueryStartData, n)
	for i := range n {
		r.take()
		id, part, err := a.begin(b.Context())
		if err == nil {
			err = a.send(b.Context(), part)
		}
		if err == nil {
			err = a.finish(b.Context(), id)
		}
		if err != nil {
			b.Fatal(err)
		}
		flows[i] = r.take()
		if len(flows[i]) != len(flows[0]) {
			b.Fatalf("flow %d has %d statements, the first %d", i, len(flows[i]), len(flows[0]))
		}
	}
	t := &tape{flows: make([][]string, n)}
	names := map[string]string{} // of the values of a place, in all flows
	var script strings.Builder
	for s, first := range flows[0] {
		types := parameterTypes(b, a.stack, first.SQL)
		text := make([]string, len(first.Args)) // what stands for each value
		for k := range first.Args {
			same, values := true, make([]string, n)
			for i, f := range flows {
				if f[s].SQL != first.SQL || len(f[s].Args) != len(first.Args) {
					b.Fatalf("flow %d says %q where the first says %q", i, f[s].SQL, first.SQL)
				}
				values[i] = valueText(f[s].Args[k])
				same = same && values[i] == values[0]
			}
			all := strings.Join(values, "\x00")
			switch name, known := names[all]; {
			case same && first.Args[k] == nil:
				text[k] = "NULL"
			case same:
				text[k] = literal(values[0])
			case known:
				text[k] = ":" + name
			default:
				name = fmt.Sprint("v", len(names))
				names[all], text[k] = name, ":"+name
				for i, v := range values {
					t.flows[i] = append(t.flows[i], v)
				}
			}
		}
		script.WriteString(placeholder.ReplaceAllStringFunc(first.SQL, func(p string) string {
			k, err := strconv.Atoi(p[1:])
			if err != nil || k > len(text) {
				b.Fatalf("%s in %q", p, first.SQL)
			}
			return "CAST(" + text[k-1] + " AS " + types[k-1] + ")" // pgbench numbers each place anew, and not each says its type
		}) + ";\n")
	}
	columns := make([]string, len(names))
	for i := range columns {
		columns[i] = fmt.Sprint("v", i)
	}
	t.sql = "\\set k :k + 1\n\\set n :client_id * " + strconv.Itoa(n/sqlClients) + " + :k\nSELECT " + strings.Join(columns, ", ") +
		" FROM tape WHERE n = :n\n\\gset\n" + script.String()
	return t
}

// literal writes a constant, with no colon: pgbench would see a variable behind it.
func literal(v string) string {
	return "E'" + strings.NewReplacer("'", "''", `\`, `\\`, ":", `\x3a`).Replace(v) + "'"
}

// parameterTypes are what PostgreSQL takes a statement's parameters for.
func parameterTypes(b *testing.B, s *stack.Stack, sql string) []string {
	b.Helper()
	conn, err := s.Pool().Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	d, err := conn.Conn().Prepare(b.Context(), "", sql)
	if err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	types := make([]string, len(d.ParamOIDs))
	for i, oid := range d.ParamOIDs {
		if err := conn.QueryRow(b.Context(), "SELECT format_type($1, NULL)", oid).Scan(&types[i]); err != nil {
			b.Fatal(err)
		}
	}
	return types
}

// valueText is a value as PostgreSQL reads it.
func valueText(v any) string {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case []byte:
		return fmt.Sprintf(`\x%x`, v)
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}

// rate is how many of the recorded flows pgbench does in a second, in sessions like
// berthd's, on a database that is as the flow's was.
func (t *tape) rate(b *testing.B, pgbench string) float64 {
	b.Helper()
	dsn := testkit.DB(b)
	conn, err := pgx.Connect(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context()) //nolint:errcheck // it has done its work
	var columns []string
	for i := range t.flows[0] {
		columns = append(columns, fmt.Sprint("v", i))
	}
	if _, err := conn.Exec(b.Context(), "CREATE TABLE tape (n int PRIMARY KEY, "+strings.Join(columns, " text, ")+" text)"); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.CopyFrom(b.Context(), pgx.Identifier{"tape"}, append([]string{"n"}, columns...), pgx.CopyFromSlice(len(t.flows), func(i int) ([]any, error) {
		row := []any{i + 1}
		for _, v := range t.flows[i] {
			row = append(row, v)
		}
		return row, nil
	})); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "ANALYZE tape"); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "flow.sql")
	if err := os.WriteFile(file, []byte(t.sql), 0o600); err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		b.Fatal(err)
	}
	each := len(t.flows) / sqlClients
	cmd := exec.CommandContext(b.Context(), pgbench, "--no-vacuum", "--protocol=prepared", "--define=k=0", "--file="+file, "--client="+strconv.Itoa(sqlClients),
		"--jobs=2", "--transactions="+strconv.Itoa(each), dsn)
	settings := ""
	for name, v := range store.Session {
		settings += " -c " + name + "=" + v
	}
	password, _ := u.User.Password()
	cmd.Env = append(os.Environ(), "PGOPTIONS="+settings, "PGPASSWORD="+password)
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(begun)
	if err != nil {
		b.Fatalf("pgbench: %v\n%s", err, out)
	}
	var active int
	if err := conn.QueryRow(b.Context(), "SELECT count(*) FROM files WHERE state = 'active'").Scan(&active); err != nil || active != each*sqlClients {
		b.Fatalf("%d of %d files are active, %v\n%s", active, each*sqlClients, err, out)
	}
	if m := regexp.MustCompile(`tps = ([0-9.]+)`).FindSubmatch(out); m != nil { // without its start
		tps, err := strconv.ParseFloat(string(m[1]), 64)
		if err == nil {
			return tps
		}
	}
	return float64(active) / took.Seconds()
}
