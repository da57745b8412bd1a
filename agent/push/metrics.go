package push

import (
	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count profiles and their bytes before compression: those sent, waiting and dropped are all that were taken.
type metrics struct {
	sentProfiles, sentBytes       prometheus.Counter
	waitingProfiles, waitingBytes prometheus.Gauge
	queueBytes                    prometheus.Gauge
	droppedProfiles, droppedBytes *prometheus.CounterVec
	attempts                      *prometheus.CounterVec
	labels                        *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		sentProfiles:    prometheus.NewCounter(counter("vramprof_push_sent_profiles_total", "Profiles that the server took.")),
		sentBytes:       prometheus.NewCounter(counter("vramprof_push_sent_bytes_total", "Bytes of profiles that the server took, before compression.")),
		waitingProfiles: gauge("vramprof_push_waiting_profiles", "Profiles that wait or are being sent."),
		waitingBytes:    gauge("vramprof_push_waiting_bytes", "Bytes of profiles that wait or are being sent, before compression."),
		queueBytes:      gauge("vramprof_push_queue_memory_bytes", "Memory of the profiles that wait or are being sent."),
		droppedProfiles: prometheus.NewCounterVec(counter("vramprof_push_dropped_profiles_total", "Profiles that were lost, by reason."), []string{"reason"}),
		droppedBytes:    prometheus.NewCounterVec(counter("vramprof_push_dropped_bytes_total", "Bytes of profiles that were lost, before compression, by reason."), []string{"reason"}),
		attempts:        prometheus.NewCounterVec(counter("vramprof_push_attempts_total", "Requests to the server, by the code of the answer."), []string{"code"}),
		labels:          prometheus.NewCounterVec(counter("vramprof_push_labels_changed_total", "Labels that the server would have refused, by what was done to them."), []string{"change"}),
	}
	for _, reason := range reasons() {
		m.droppedProfiles.WithLabelValues(string(reason))
		m.droppedBytes.WithLabelValues(string(reason))
	}
	for _, change := range changes() {
		m.labels.WithLabelValues(string(change))
	}
	for _, c := range []prometheus.Collector{
		m.sentProfiles, m.sentBytes, m.waitingProfiles, m.waitingBytes, m.queueBytes, m.droppedProfiles, m.droppedBytes, m.attempts, m.labels,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) send(bytes int64) {
	m.sentProfiles.Inc()
	m.sentBytes.Add(float64(bytes))
}

func (m *metrics) drop(r Reason, bytes int64) {
	m.droppedProfiles.WithLabelValues(string(r)).Inc()
	m.droppedBytes.WithLabelValues(string(r)).Add(float64(bytes))
}

func (m *metrics) attempt(err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.attempts.WithLabelValues(code).Inc()
}

func (m *metrics) change(changes []Change) {
	for _, c := range changes {
		m.labels.WithLabelValues(string(c)).Inc()
	}
}
