package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Limits of what clocks may differ by. S3 refuses from 15 minutes on; URLs, leases and
// deadlines are wrong by the difference before.
const (
	skewWarning = 30 * time.Second
	skewFailure = 5 * time.Minute
)

const callTimeout = 20 * time.Second

func (d *doctor) database(ctx context.Context) {
	const check = "database"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.Database)
	if err != nil {
		// pgx's own text names host and user, never the password.
		d.add(check, Failure, "cannot be reached: "+err.Error(),
			"Look at database.url, at the password's file, at the network between here and there, and whether PostgreSQL runs.",
			`module "service": the security group "database" admits the service's tasks only; run the doctor as such a task`)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
	var version string
	var there time.Time
	before := d.Now()
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version'), clock_timestamp()").Scan(&version, &there); err != nil {
		d.add(check, Failure, "does not answer: "+err.Error(), "Look whether it is a PostgreSQL and takes queries.", "")
		return
	}
	after := d.Now()
	d.ok(check, "PostgreSQL %s answers", version)
	d.skew("database clock", there.Sub(before.Add(after.Sub(before)/2)), "the database's")

	switch n, err := d.Pending(ctx); {
	case err != nil:
		d.add("schema", Failure, "cannot be read: "+err.Error(), "Run `berthd migrate` with the same configuration, as the schema's owner.", "")
	case n > 0:
		d.add("schema", Failure, fmt.Sprintf("lacks %d migrations", n), "Run `berthd migrate` with the same configuration before `berthd serve`.",
			`module "service": run the task definition in output migrate_task_definition_arn`)
	default:
		d.ok("schema", "is of this version or newer")
	}
}

// skew judges a clock against ours; by is theirs less ours.
func (d *doctor) skew(check string, by time.Duration, whose string) {
	abs := by.Abs().Round(time.Second)
	status := OK
	switch {
	case abs >= skewFailure:
		status = Failure
	case abs >= skewWarning:
		status = Warning
	}
	if status == OK {
		d.ok(check, "differs from ours by %s at most", max(abs, time.Second))
		return
	}
	direction := "behind"
	if by < 0 {
		direction = "ahead of"
	}
	d.add(check, status, fmt.Sprintf("this machine's clock is %s %s %s: signed URLs end that much too early or too late, and S3 refuses all from 15m on", abs, direction, whose),
		"Set this machine's clock by NTP (chrony, systemd-timesyncd) and let it run; if it is right, set the other's.",
		`Fargate's clocks are set by AWS; on instances of your own install chrony`)
}
