package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/models"
)

// Metrics counts what the use cases do.
type Metrics struct {
	opens    *prometheus.CounterVec
	urls     prometheus.Counter
	verifies *prometheus.CounterVec
	unknown  *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them; a nil registerer leaves them
// unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		opens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_uploads_opened_total",
			Help: "Opens by collection and outcome."}, []string{"collection", "outcome"}),
		urls: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_part_urls_signed_total",
			Help: "Part URLs given out by the sign call."}),
		verifies: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_verifications_total",
			Help: "Verifications by the side they came from and what they came to."}, []string{"from", "outcome"}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_events_unknown_key_total",
			Help: "Notifications whose key is no upload's."}, []string{"store"}),
	}
	if reg != nil {
		reg.MustRegister(m.opens, m.urls, m.verifies, m.unknown)
	}
	return m
}

func (m *Metrics) opened(collection string, o models.OpenOutcome) {
	m.opens.WithLabelValues(collection, string(o)).Inc()
}

func (m *Metrics) signed(n int) { m.urls.Add(float64(n)) }

func (m *Metrics) verified(from string, s settlement) {
	m.verifies.WithLabelValues(from, string(s)).Inc()
}

func (m *Metrics) unknownKey(store models.StoreName) {
	m.unknown.WithLabelValues(string(store)).Inc()
}
