package symbolizer_test

import (
	"testing"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/symbolizer"
)

// BenchmarkAPI measures an agent's batch, of native and Python locations that were asked before, over HTTP/2.
func BenchmarkAPI(b *testing.B) {
	p, frames := compile(b), traceback(b)
	_, url := start(b, symbolizer.Options{Dir: b.TempDir()})
	c := dial(url)
	fillService(b, c, p, frames)
	one, _ := request(p, frames)
	batch := &symbolizerv1.SymbolizeRequest{Objects: one.Objects, CodeDigests: one.CodeDigests}
	for len(batch.Native)+len(batch.Python) < 10_000 {
		batch.Native, batch.Python = append(batch.Native, one.Native...), append(batch.Python, one.Python...)
	}
	for b.Loop() {
		if _, err := c.Symbolize(b.Context(), connect.NewRequest(batch)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch.Native)+len(batch.Python)), "ns/location")
}
