package events

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a message.
const (
	outcomeSettled   = "settled"
	outcomeTest      = "test"
	outcomeForeign   = "foreign" // of no bucket of ours
	outcomePassing   = "passing" // comes again later
	outcomeMalformed = "malformed"
	outcomeReleased  = "released" // given back at a stop
	outcomeLater     = "later"    // of a reap task that is not due, or another's
)

// metrics are a consumer's. The label queue tells those of one process apart: events, reap.
type metrics struct {
	messages       *prometheus.CounterVec
	events         prometheus.Counter
	settle         *prometheus.HistogramVec
	age            *prometheus.HistogramVec
	deleteFailed   prometheus.Counter
	unknownBuckets prometheus.Counter
	skippedKeys    prometheus.Counter
	receiveFailed  prometheus.Counter
	broken         prometheus.Gauge
	oldest         []atomic.Int64 // by poller, nanoseconds
}

func newMetrics(r prometheus.Registerer, queue string, pollers int) *metrics {
	seconds := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_events_messages_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Messages by what became of them."}, []string{"outcome"}),
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_events_handed_on_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Events given to be settled, repetitions in one batch left out."}),
		settle: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_events_settle_seconds", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "From receiving a message to its end.", Buckets: seconds}, []string{"outcome"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_events_age_seconds", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "From a message's sending to its end: what S3's word takes to become a file's state.", Buckets: seconds}, []string{"outcome"}),
		deleteFailed: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_events_delete_failed_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Messages that were settled but could not be deleted; they come again."}),
		unknownBuckets: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_events_unknown_bucket_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Events of a bucket or prefix that no store has."}),
		skippedKeys: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_events_skipped_key_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Events of keys that cannot be Berth's."}),
		receiveFailed: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_events_receive_failed_total", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "Polls that failed."}),
		broken: prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_events_breaker_open", ConstLabels: prometheus.Labels{"queue": queue},
			Help: "1 while everything fails and the pollers only try."}),
		oldest: make([]atomic.Int64, pollers),
	}
	for _, o := range []string{outcomeSettled, outcomeTest, outcomeForeign, outcomePassing, outcomeMalformed, outcomeReleased, outcomeLater} {
		m.messages.WithLabelValues(o)
	}
	if r != nil {
		r.MustRegister(m.messages, m.events, m.settle, m.age, m.deleteFailed, m.unknownBuckets, m.skippedKeys, m.receiveFailed, m.broken,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "berth_events_oldest_message_age_seconds", ConstLabels: prometheus.Labels{"queue": queue},
				Help: "Age of the oldest message in the pollers' newest batches; 0 when they found none."}, m.oldestAge))
	}
	return m
}

func (m *metrics) oldestAge() float64 {
	var most int64
	for i := range m.oldest {
		most = max(most, m.oldest[i].Load())
	}
	return time.Duration(most).Seconds()
}

func (m *metrics) ended(outcome string, msg *message, now time.Time) {
	m.messages.WithLabelValues(outcome).Inc()
	m.settle.WithLabelValues(outcome).Observe(now.Sub(msg.received).Seconds())
	if !msg.sent.IsZero() {
		m.age.WithLabelValues(outcome).Observe(max(0, now.Sub(msg.sent).Seconds()))
	}
}
