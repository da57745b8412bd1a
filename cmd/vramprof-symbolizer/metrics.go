package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/symbolizer"
)

// collector gives the service's counts to Prometheus when it asks.
type collector struct{ service *symbolizer.Service }

var (
	locations = prometheus.NewDesc("vramprof_symbolizer_locations_total",
		"Locations that were answered, by kind (native, python) and status.", []string{"kind", "status"}, nil)
	uploads = prometheus.NewDesc("vramprof_symbolizer_uploads_total",
		"Uploaded objects and code objects, by kind (object, code) and result.", []string{"kind", "result"}, nil)
	uploadedBytes = prometheus.NewDesc("vramprof_symbolizer_uploaded_object_bytes_total",
		"Bytes of uploaded objects.", nil, nil)
	cache = prometheus.NewDesc("vramprof_symbolizer_native_cache_total",
		"Native locations that were answered from memory (hit) and from disk (miss).", []string{"result"}, nil)
	codes = prometheus.NewDesc("vramprof_symbolizer_code_objects",
		"Python code objects that are known.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{locations, uploads, uploadedBytes, cache, codes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.service.Statistics()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, l := range s.Locations {
		count(locations, l.Count, l.Kind, l.Status)
	}
	for _, u := range s.Uploads {
		count(uploads, u.Count, u.Kind, u.Result)
	}
	count(uploadedBytes, s.UploadedBytes)
	count(cache, s.CacheHits, "hit")
	count(cache, s.CacheMisses, "miss")
	ch <- prometheus.MustNewConstMetric(codes, prometheus.GaugeValue, float64(s.Codes))
}
