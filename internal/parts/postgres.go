package parts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says what kind of cluster to run.
type PostgresOptions struct {
	Dir  string // the cluster's; made on the first start
	Port int    // 0: a free one
	Log  string // file; empty: only the tail is kept, for errors

	// Volatile is for tests: nothing is synced to disk, and a crash of the
	// machine may lose all of it.
	Volatile bool
}

// Postgres is a running server with a cluster of its own.
type Postgres struct {
	Port  int
	Dir   string // where the cluster is, which is elsewhere than asked when Moved
	Moved bool

	child    *Child
	password string
}

const postgresUser = "berth"

// StartPostgres starts a server on loopback and waits until it answers.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	who, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	dir := PostgresDir(o.Dir)
	if dir == "" {
		return nil, fmt.Errorf("postgres: %s: the user %s cannot reach it, nor any temporary folder", o.Dir, who.Name)
	}
	p := &Postgres{Dir: dir, Moved: dir != o.Dir}
	if err := p.init(ctx, bin, who, o.Volatile); err != nil {
		return nil, err
	}
	err = onPort("postgres", o.Port, func(port int) error {
		p.Port = port
		return p.start(ctx, bin, who, o)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// postgresBin finds the folder with initdb and postgres: the one on PATH, or
// the newest under /usr/lib/postgresql, where Debian puts them outside PATH.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dir := filepath.Dir(path)
			if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
				return dir, nil
			}
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	sort.Slice(found, func(i, j int) bool { return debianVersion(found[i]) > debianVersion(found[j]) })
	for _, path := range found {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("postgres: initdb and postgres are neither on PATH nor under /usr/lib/postgresql; install the package postgresql (make setup)")
}

func debianVersion(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// PostgresDir says where a cluster wanted in dir goes. It is dir itself, unless
// we are root and the unprivileged user cannot reach it (/root is closed on most
// machines): then a folder named after dir where everybody can. It is empty when
// there is no such place.
func PostgresDir(dir string) string {
	who, err := unprivileged()
	if err != nil || who == nil || reachable(dir, who) {
		return dir
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	// /var/tmp first: it outlives a restart of the machine, as dir would.
	name := fmt.Sprintf("berth-postgres-%x", sha256.Sum256([]byte(abs)))[:len("berth-postgres-")+12]
	for _, tmp := range []string{"/var/tmp", os.TempDir(), "/tmp"} {
		if st, err := os.Stat(tmp); err == nil && st.IsDir() && reachable(tmp, who) {
			return filepath.Join(tmp, name)
		}
	}
	return ""
}

func (p *Postgres) passwordFile() string { return filepath.Join(p.Dir, "password") }
func (p *Postgres) data() string         { return filepath.Join(p.Dir, "data") }

// init makes the cluster unless it is there. initdb works in a folder beside
// the real one, renamed when complete, so a start that was interrupted is not
// taken for a cluster.
func (p *Postgres) init(ctx context.Context, bin string, who *User, volatile bool) error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := p.own(who, p.Dir); err != nil {
		return err
	}
	var err error
	if p.password, err = Secret(p.passwordFile(), 32); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	// initdb reads it as the unprivileged user.
	if err := p.own(who, p.passwordFile()); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.data(), "PG_VERSION")); err == nil {
		return nil
	}
	part := p.data() + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	args := []string{
		"--pgdata=" + part, "--username=" + postgresUser, "--pwfile=" + p.passwordFile(), "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if volatile {
		args = append(args, "--no-sync")
	}
	child, err := Start(Command{
		Part: "initdb", Path: filepath.Join(bin, "initdb"), Args: args, Dir: p.Dir, Env: postgresEnv(), User: who,
		Stop: os.Interrupt, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	if err := child.Wait(ctx); err != nil {
		return err
	}
	if err := os.Rename(part, p.data()); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (p *Postgres) own(who *User, path string) error {
	if who == nil {
		return nil
	}
	if err := os.Chown(path, int(who.UID), int(who.GID)); err != nil {
		return fmt.Errorf("postgres: give to user %s: %w", who.Name, err)
	}
	return nil
}

// postgresEnv drops PG* from the environment, which would change what the
// programs do.
func postgresEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") {
			env = append(env, kv)
		}
	}
	return env
}

func (p *Postgres) start(ctx context.Context, bin string, who *User, o PostgresOptions) error {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.Port), "unix_socket_directories=",
		"logging_collector=off", "log_destination=stderr", "timezone=UTC", "log_timezone=UTC",
		"max_connections=300", "dynamic_shared_memory_type=posix",
		// The default of 100 bytes of notice for each connection serves nobody.
		"log_min_messages=warning",
	}
	if o.Volatile {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "max_wal_size=512MB", "checkpoint_timeout=1d", "autovacuum_naptime=5s")
	}
	args := []string{"-D", p.data()}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	child, err := Start(Command{
		Part: "postgres", Path: filepath.Join(bin, "postgres"), Args: args, Dir: p.Dir, Env: postgresEnv(), User: who, Log: o.Log,
		// SIGINT is its "fast" shutdown. SIGQUIT, "immediate", also takes its own
		// children along; the next start then recovers from the log.
		Stop: syscall.SIGINT, DeathSignal: syscall.SIGQUIT,
	})
	if err != nil {
		return err
	}
	if err := child.Await(ctx, p.ping); err != nil {
		return errors.Join(err, child.Stop(5*time.Second))
	}
	p.child = child
	return nil
}

func (p *Postgres) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SELECT 1")
	return err
}

// DSN is the URL of one of the server's databases, for its superuser.
func (p *Postgres) DSN(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(postgresUser, p.password), Host: Addr(p.Port), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// EnsureDatabase makes the database unless it is there.
func (p *Postgres) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("postgres: database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil {
		return fmt.Errorf("postgres: database %s: %w", name, err)
	}
	if there {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("postgres: database %s: %w", name, err)
	}
	return nil
}

// Child is the server's process.
func (p *Postgres) Child() *Child { return p.child }

// Stop ends the server in an orderly way.
func (p *Postgres) Stop() error {
	if p == nil {
		return nil
	}
	return p.child.Stop(20 * time.Second)
}
