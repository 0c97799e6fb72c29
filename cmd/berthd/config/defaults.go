package config

import (
	"strings"
	"time"

	"berth/models"
)

// defaults gives every key that was not given its value. What was given stays, also
// if it is zero.
func (l *loader) defaults(environ []string) {
	c := &l.config
	fallback(l, "listen", &c.Listen, "127.0.0.1:8080")
	fallback(l, "stop_delay", &c.StopDelay, Duration(5*time.Second))
	fallback(l, "roles", &c.Roles, Roles)
	fallback(l, "log.level", &c.Log.Level, "info")
	fallback(l, "log.format", &c.Log.Format, "json")
	fallback(l, "database.max_conns", &c.Database.MaxConns, 20)
	fallback(l, "auth.leeway", &c.Auth.Leeway, Duration(30*time.Second))
	fallback(l, "events.pollers", &c.Events.Pollers, 2)
	fallback(l, "events.visibility", &c.Events.Visibility, Duration(time.Minute))
	fallback(l, "worker.interval", &c.Worker.Interval, Duration(time.Minute))
	fallback(l, "worker.reconcile", &c.Worker.Reconcile, Duration(24*time.Hour))
	fallback(l, "worker.history", &c.Worker.History, Duration(400*day))
	fallback(l, "worker.lease", &c.Worker.Lease, Duration(2*time.Minute))
	fallback(l, "worker.concurrency.replicate", &c.Worker.Concurrency.Replicate, 4)
	fallback(l, "worker.concurrency.process", &c.Worker.Concurrency.Process, 8)
	fallback(l, "worker.concurrency.reap", &c.Worker.Concurrency.Reap, 4)
	fallback(l, "reap.dispatch", &c.Reap.Dispatch, DispatchPoll)
	fallback(l, "reap.pollers", &c.Reap.Pollers, 1)
	fallback(l, "reap.visibility", &c.Reap.Visibility, Duration(time.Minute))
	fallback(l, "reap.again", &c.Reap.Again, Duration(5*time.Minute))
	fallback(l, "reap.net", &c.Reap.Net, Duration(5*time.Minute))
	fallback(l, "limits.max_body", &c.Limits.MaxBody, 1<<20)
	fallback(l, "limits.request_timeout", &c.Limits.RequestTimeout, Duration(30*time.Second))

	fallback(l, "events.region", &c.Events.Region, regionOf(environ, c.Events.Endpoint))
	for name, s := range c.Stores {
		at := "stores." + name
		fallback(l, at+".region", &s.Region, regionOf(environ, s.Endpoint))
		style := s.Endpoint != ""
		fallback(l, at+".path_style", &s.PathStyle, &style)
		c.Stores[name] = s
	}
	if len(c.Collections) == 0 && !l.bad["collections"] {
		c.Collections = map[string]Collection{"default": {}}
	}
	for name, col := range c.Collections {
		l.collectionDefaults("collections."+name, &col)
		c.Collections[name] = col
	}
}

func (l *loader) collectionDefaults(at string, c *Collection) {
	fallback(l, at+".dedupe", &c.Dedupe, string(models.DedupeNone))
	fallback(l, at+".algorithm", &c.Algorithm, string(models.SHA256))
	fallback(l, at+".commit", &c.Commit, string(models.CommitAuto))
	fallback(l, at+".store", &c.Store, l.onlyStore())
	fallback(l, at+".part_size", &c.PartSize, models.DefaultPartSize)
	fallback(l, at+".single_max", &c.SingleMax, models.DefaultSingleMax)
	fallback(l, at+".deadline", &c.Deadline, Duration(24*time.Hour))
	fallback(l, at+".hard_deadline", &c.HardDeadline, max(Duration(7*day), c.Deadline))
	fallback(l, at+".grace", &c.Grace, Duration(time.Hour))
	fallback(l, at+".url_expiry", &c.URLExpiry, Duration(time.Hour))
	fallback(l, at+".max_metadata_bytes", &c.MaxMetadataBytes, models.MaxMetadataBytes)
	for i := range c.Steps {
		s := &c.Steps[i]
		fallback(l, join(index(at+".steps", i), "timeout"), &s.Timeout, Duration(30*time.Second))
		if s.Kind == "inspect" {
			fallback(l, join(index(at+".steps", i), "action"), &s.Action, string(models.StepBlock))
		}
	}
}

// onlyStore is the store of a collection that names none: the only one, or main.
func (l *loader) onlyStore() string {
	if _, ok := l.config.Stores["main"]; ok {
		return "main"
	}
	if len(l.config.Stores) == 1 {
		for name := range l.config.Stores {
			return name
		}
	}
	return ""
}

func fallback[T any](l *loader, key string, v *T, value T) {
	if !l.has(key) {
		*v = value
	}
}

// regionOf is the region of the environment. Behind an endpoint of its own it may be
// any, but signatures need one; else "" leaves it to the AWS SDK's own files.
func regionOf(environ []string, endpoint string) string {
	region := ""
	if endpoint != "" {
		region = "us-east-1"
	}
	for _, want := range []string{"AWS_DEFAULT_REGION=", "AWS_REGION="} {
		for _, e := range environ {
			if v, ok := strings.CutPrefix(e, want); ok && v != "" {
				region = v
			}
		}
	}
	return region
}
