package ehframe_test

import (
	"os"
	"testing"

	"github.com/vramprof/vramprof/internal/ehframe"
	"github.com/vramprof/vramprof/internal/elfobj"
)

// BenchmarkParse says what one large library costs.
func BenchmarkParse(b *testing.B) {
	for _, path := range []string{"/usr/lib/llvm-14/lib/libLLVM-14.so.1", "/root/.pyenv/versions/3.13.0/lib/libpython3.13.so.1.0", "/lib/x86_64-linux-gnu/libc.so.6"} {
		f, err := os.Open(path)
		if err != nil {
			continue // measures what this machine has
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			b.Fatal(err)
		}
		object, err := elfobj.Open(f, st.Size())
		if err != nil {
			b.Fatal(err)
		}
		eh, at, hdr, hdrAt, err := object.EHFrame()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(st.Name(), func(b *testing.B) {
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
			b.ReportMetric(float64(len(eh)), "sectionbytes")
		})
	}
}
