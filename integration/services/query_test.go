package services_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
)

const allocBytes = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"

// freeAddress is an address of this machine on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// mustAsk makes one call of the query API.
func mustAsk[Q, A any](t *testing.T, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), question *Q) *A {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := call(ctx, connect.NewRequest(question))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

func (s *server) querier() querierv1connect.QuerierServiceClient {
	return querierv1connect.NewQuerierServiceClient(http.DefaultClient, s.url)
}

// window is everything that a test of this package can have made.
func window() (start, end int64) {
	now := time.Now()
	return now.Add(-10 * time.Minute).UnixMilli(), now.Add(time.Minute).UnixMilli()
}

// all selects the allocated bytes of a selector's series, or of a service's.
func all(selector string) *querierv1.SelectMergeStacktracesRequest {
	if !strings.HasPrefix(selector, "{") {
		selector = fmt.Sprintf("{service_name=%q}", unique(selector))
	}
	start, end := window()
	return &querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: selector, Start: start, End: end}
}

// graph is the flame graph of a selector or service.
func (s *server) graph(t *testing.T, selector string) *querierv1.FlameGraph {
	t.Helper()
	return mustAsk(t, s.querier().SelectMergeStacktraces, all(selector)).GetFlamegraph()
}

// awaitTotal waits until as many bytes are there as the driver was asked for.
func (s *server) awaitTotal(t *testing.T, selector string, want uint64) {
	t.Helper()
	var got int64
	defer func() {
		if t.Failed() {
			t.Logf("%s: %d bytes, want %d", selector, got, want)
		}
	}()
	until(t, "profile of "+selector, func() bool {
		got = s.graph(t, selector).GetTotal()
		return got >= int64(want)
	})
	if got != int64(want) {
		t.Errorf("%s: %d bytes, the driver was asked for %d", selector, got, want)
	}
}

// stack is a stack of a profile, innermost first.
type stack struct {
	frames []frame
	bytes  int64
}

// frame is a frame by its function as the symbol table has it and the base name of its object.
type frame struct{ system, object string }

// stacks are those of a service.
func (s *server) stacks(t *testing.T, service string) []stack {
	t.Helper()
	question := all(service)
	question.Format = querierv1.ProfileFormat_PROFILE_FORMAT_PPROF
	p := mustAsk(t, s.querier().SelectMergeStacktraces, question).GetPprof().GetProfile()
	text := p.GetStringTable()
	objects := map[uint64]string{}
	for _, m := range p.GetMapping() {
		objects[m.GetId()] = path.Base(text[m.GetFilename()])
	}
	functions := map[uint64]string{}
	for _, f := range p.GetFunction() {
		functions[f.GetId()] = text[f.GetSystemName()]
	}
	locations := map[uint64][]frame{}
	for _, l := range p.GetLocation() {
		for _, line := range l.GetLine() {
			locations[l.GetId()] = append(locations[l.GetId()], frame{functions[line.GetFunctionId()], objects[l.GetMappingId()]})
		}
	}
	var out []stack
	for _, sample := range p.GetSample() {
		one := stack{bytes: sample.GetValue()[0]}
		for _, id := range sample.GetLocationId() {
			one.frames = append(one.frames, locations[id]...)
		}
		out = append(out, one)
	}
	return out
}

// frames are the names of all frames of a service.
func (s *server) frames(t *testing.T, service string) []string {
	t.Helper()
	return slices.Sorted(slices.Values(s.graph(t, service).GetNames()))
}

// labels are the values of some labels of a service's series.
func (s *server) labels(t *testing.T, service string, names ...string) []map[string]string {
	t.Helper()
	start, end := window()
	r := mustAsk(t, s.querier().Series, &querierv1.SeriesRequest{
		Matchers: []string{fmt.Sprintf("{service_name=%q}", unique(service))}, LabelNames: names, Start: start, End: end})
	var out []map[string]string
	for _, set := range r.GetLabelsSet() {
		one := map[string]string{}
		for _, l := range set.GetLabels() {
			one[l.GetName()] = l.GetValue()
		}
		out = append(out, one)
	}
	return out
}

// growth is a function in the comparison of two profiles: the bytes of it and all that it called.
type growth struct {
	name          string
	before, after int64
}

// grown are the functions that have more bytes in the right selection than in the left.
func (s *server) grown(t *testing.T, left, right string) []growth {
	t.Helper()
	r := mustAsk(t, s.querier().Diff, &querierv1.DiffRequest{Left: all(left), Right: all(right)}).GetFlamegraph()
	found := map[growth]bool{}
	for _, level := range r.GetLevels() {
		// Seven numbers a node: offset, total and self of the left, the same of the right, and the name.
		for v := range slices.Chunk(level.GetValues(), 7) {
			if g := (growth{r.GetNames()[v[6]], v[1], v[4]}); g.after > g.before {
				found[g] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b growth) int { return strings.Compare(a.name, b.name) })
}
