package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/models"
)

// Metrics is what runs count. The gauges are of the last run, by whichever process; see
// Daily.
type Metrics struct {
	runs     *prometheus.CounterVec
	found    *prometheus.CounterVec
	mended   *prometheus.CounterVec
	findings *prometheus.GaugeVec
	success  *prometheus.GaugeVec
	seconds  *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them; a nil registerer leaves them
// unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_reconcile_runs_total",
			Help: "Reconciliations of this process by store and how they ended: succeeded, failed."}, []string{"store", "outcome"}),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_reconcile_found_total",
			Help: "Findings of this process's reconciliations."}, []string{"store", "kind"}),
		mended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_reconcile_mended_total",
			Help: "Findings that were mended: removed, handed to the reaper, counted again."}, []string{"store", "kind"}),
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_reconcile_findings",
			Help: "Findings of the last finished reconciliation that it did not mend."}, []string{"store", "kind"}),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_reconcile_last_success_timestamp_seconds",
			Help: "When a reconciliation last succeeded, in Unix time."}, []string{"store"}),
		seconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_reconcile_seconds",
			Help: "How long the last finished reconciliation took."}, []string{"store"}),
	}
	if reg != nil {
		reg.MustRegister(m.runs, m.found, m.mended, m.findings, m.success, m.seconds)
	}
	return m
}

// ended counts a run of this process.
func (m *Metrics) ended(run *models.Reconciliation) {
	store := string(run.Store)
	m.runs.WithLabelValues(store, string(run.State)).Inc()
	for kind, c := range run.Report.Findings {
		m.found.WithLabelValues(store, string(kind)).Add(float64(c.Found))
		m.mended.WithLabelValues(store, string(kind)).Add(float64(c.Mended))
	}
	if run.State == models.RunSucceeded {
		m.last(run)
	}
}

// last shows the last run that succeeded.
func (m *Metrics) last(run *models.Reconciliation) {
	store := string(run.Store)
	m.success.WithLabelValues(store).Set(float64(run.FinishedAt.Unix()))
	m.seconds.WithLabelValues(store).Set(run.Report.Seconds)
	for _, kind := range models.FindingKinds {
		open := 0.0
		if c := run.Report.Findings[kind]; c != nil {
			open = float64(c.Found - c.Mended)
		}
		m.findings.WithLabelValues(store, string(kind)).Set(open)
	}
}
