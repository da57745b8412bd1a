package ehframe_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/ehframe"
)

// BenchmarkParse says what the libraries of this machine cost.
func BenchmarkParse(b *testing.B) {
	large, err := filepath.Glob("/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range slices.Concat(libraries(b)[:1], libpythons(b), large) {
		object := open(b, path)
		eh, at, hdr, hdrAt, err := object.EHFrame()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(filepath.Base(path), func(b *testing.B) {
			rows := 0
			for b.Loop() {
				t, err := ehframe.Parse(eh, at, hdr, hdrAt)
				if err != nil {
					b.Fatal(err)
				}
				rows = len(t.Rows)
			}
			b.ReportMetric(float64(rows), "rows")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
		})
	}
}
