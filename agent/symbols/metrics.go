package symbols

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	locations     *prometheus.CounterVec
	lookups       *prometheus.CounterVec
	uploads       *prometheus.CounterVec
	uploadedBytes prometheus.Counter
	cacheEntries  prometheus.Gauge
	cacheBytes    prometheus.Gauge
	up            prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		locations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vramprof_symbols_locations_total", Help: "Places that were to be named, by kind and outcome. All but resolved have an address, or no line.",
		}, []string{"kind", "outcome"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vramprof_symbols_cache_lookups_total", Help: "Different places looked up in the cache of names.",
		}, []string{"result"}),
		uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vramprof_symbols_uploads_total", Help: "Files and code objects uploaded to the symbolizer, by result.",
		}, []string{"kind", "result"}),
		uploadedBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vramprof_symbols_uploaded_bytes_total", Help: "Bytes of files uploaded to the symbolizer.",
		}),
		cacheEntries: prometheus.NewGauge(prometheus.GaugeOpts{Name: "vramprof_symbols_cache_entries", Help: "Places in the cache of names."}),
		cacheBytes:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "vramprof_symbols_cache_bytes", Help: "Memory of the cache of names, about."}),
		up:           prometheus.NewGauge(prometheus.GaugeOpts{Name: "vramprof_symbols_up", Help: "Whether the symbolizer answered when it was last asked."}),
	}
	for k := range kinds {
		for o := range outcomes {
			m.locations.WithLabelValues(k.String(), o.String())
		}
		for _, result := range []Result{Stored, Known, NoSource, TooLarge, Refused, Failed} {
			m.uploads.WithLabelValues(k.String(), string(result))
		}
	}
	for _, c := range []prometheus.Collector{m.locations, m.lookups, m.uploads, m.uploadedBytes, m.cacheEntries, m.cacheBytes, m.up} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) count(native, python []Location) {
	for kind, locations := range [kinds][]Location{native, python} {
		var n [outcomes]int
		for _, l := range locations {
			n[l.Outcome]++
		}
		for o, n := range n {
			m.locations.WithLabelValues(Kind(kind).String(), Outcome(o).String()).Add(float64(n))
		}
	}
}

func (m *metrics) recalled(hits, misses, entries int, bytes int64) {
	m.lookups.WithLabelValues("hit").Add(float64(hits))
	m.lookups.WithLabelValues("miss").Add(float64(misses))
	m.cacheEntries.Set(float64(entries))
	m.cacheBytes.Set(float64(bytes))
}

func (m *metrics) uploaded(k Kind, r Result, n int) {
	m.uploads.WithLabelValues(k.String(), string(r)).Add(float64(n))
}
