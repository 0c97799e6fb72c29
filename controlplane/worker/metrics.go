package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/models"
)

// Metrics is what the loops count.
type Metrics struct {
	decisions  *prometheus.CounterVec
	announced  *prometheus.CounterVec
	versions   prometheus.Counter
	bytes      prometheus.Counter
	multiparts prometheus.Counter
	repairs    *prometheus.CounterVec
	events     *prometheus.CounterVec
	steps      *prometheus.CounterVec
	takeovers  *prometheus.CounterVec
	tasks      *prometheus.GaugeVec
	age        *prometheus.GaugeVec
	late       prometheus.Gauge
	beat       *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them; a nil registerer leaves them
// unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_reaps_total",
			Help: "Reap attempts by what they came to: reaped, failed, ignored, postponed, refused, lease_lost."}, []string{"outcome"}),
		announced: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_reap_announcements_total",
			Help: "Due reap tasks announced on the queue, by what came of the sending: sent, failed."}, []string{"outcome"}),
		versions:   prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_reaped_versions_total", Help: "Object versions and delete markers deleted."}),
		bytes:      prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_reaped_bytes_total", Help: "Bytes of the versions deleted."}),
		multiparts: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_aborted_multiparts_total", Help: "Multipart uploads aborted by the reaper."}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_repairs_total",
			Help: "What repair did: expired, finished, rechecked, returned, ensured."}, []string{"what"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_outbox_sends_total",
			Help: "Attempts to send an event by what they came to: sent, pending (again), failed."}, []string{"outcome"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_steps_total",
			Help: "Calls of processing steps by what they came to: pass, block, delete, later, failed, stale."}, []string{"outcome"}),
		takeovers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_lease_takeovers_total",
			Help: "Tasks claimed from a lease that had died, by kind: a worker was killed, stopped or cut off."}, []string{"kind"}),
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_tasks",
			Help: "Tasks that are due, running or failed, by kind and state."}, []string{"kind", "state"}),
		age: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_tasks_oldest_seconds",
			Help: "How long the oldest task of a kind has been due."}, []string{"kind"}),
		late: prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_uploads_past_deadline",
			Help: "Open uploads past their end that repair has not closed."}),
		beat: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_loop_last_success_timestamp_seconds",
			Help: "When a loop last ran without an error, in Unix time."}, []string{"loop"}),
	}
	if reg != nil {
		reg.MustRegister(m.decisions, m.announced, m.versions, m.bytes, m.multiparts, m.repairs, m.events, m.steps, m.takeovers, m.tasks, m.age, m.late, m.beat)
	}
	return m
}

// Beat notes a pass that did not fail.
func (m *Metrics) Beat(loop string, at time.Time) {
	m.beat.WithLabelValues(loop).Set(float64(at.Unix()))
}

func (m *Metrics) reaped(d models.Decision, o models.ReapOutcome) {
	outcome := string(d)
	if d == models.Allowed {
		outcome = "reaped"
		if o.Failure != "" {
			outcome = "failed"
		}
	}
	m.decisions.WithLabelValues(outcome).Inc()
	m.versions.Add(float64(o.Versions))
	m.bytes.Add(float64(o.Bytes))
	m.multiparts.Add(float64(o.Multipart))
}

// claimed counts the tasks whose worker had died.
func (m *Metrics) claimed(tasks []models.Task) {
	for _, k := range tasks {
		if k.TakenOver {
			m.takeovers.WithLabelValues(string(k.Kind)).Inc()
		}
	}
}

func (m *Metrics) announce(c AnnounceCounts) {
	m.announced.WithLabelValues("sent").Add(float64(c.Sent))
	m.announced.WithLabelValues("failed").Add(float64(c.Failed))
}

func (m *Metrics) published(to models.OutboxState) { m.events.WithLabelValues(string(to)).Inc() }

func (m *Metrics) stepped(outcome string) { m.steps.WithLabelValues(outcome).Inc() }

func (m *Metrics) swept(c models.SweepCounts) {
	for what, n := range map[string]int{"expired": c.Expired, "finished": c.Finished, "rechecked": c.Rechecked,
		"returned": c.Returned, "ensured": c.Ensured} {
		m.repairs.WithLabelValues(what).Add(float64(n))
	}
}

func (m *Metrics) gauge(stats []models.TaskStats, late int64, now time.Time) {
	m.tasks.Reset()
	m.age.Reset()
	for _, s := range stats {
		m.tasks.WithLabelValues(string(s.Kind), string(s.State)).Set(float64(s.Count))
		if s.State == models.TaskPending {
			m.age.WithLabelValues(string(s.Kind)).Set(max(now.Sub(s.Oldest).Seconds(), 0))
		}
	}
	m.late.Set(float64(late))
}
