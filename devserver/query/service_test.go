package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

const (
	allocBytes = "gpu:gpu_alloc_bytes:bytes:gpu:bytes"
	inUseBytes = "gpu:gpu_inuse_bytes:bytes:gpu:bytes"
	noon       = int64(1_800_000_000_000) // milliseconds
)

// memory is a source of profiles in memory.
type memory []*profiles.Selected

func (m memory) Select(_ context.Context, match func(profiles.Labels) bool, from, to int64, visit func(*profiles.Selected) error) error {
	for _, p := range m {
		if p.TimeNanos >= from && p.TimeNanos <= to && match(p.Labels) {
			given := *p // the visitor may change it
			given.Stacks = slices.Clone(p.Stacks)
			if err := visit(&given); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m memory) Totals(match func(profiles.Labels) bool, from, to int64, visit func(profiles.Labels, int64, int64)) error {
	return m.Select(context.Background(), match, from, to, func(p *profiles.Selected) error {
		var total int64
		for _, s := range p.Stacks {
			total += s.Value
		}
		visit(p.Labels, p.TimeNanos, total)
		return nil
	})
}

func (m memory) Series(match func(profiles.Labels) bool, from, to int64) []profiles.Labels {
	var all []profiles.Labels
	for _, p := range m {
		if (from == 0 && to == 0 || p.TimeNanos >= from && p.TimeNanos <= to) && match(p.Labels) {
			all = append(all, p.Labels)
		}
	}
	return all
}

// at is a profile of a type, of a service and version, at a moment in nanoseconds; the stacks go inwards.
func at(nanos int64, id, service, version string, values map[string]int64) *profiles.Selected {
	p := selected(values)
	p.TimeNanos, p.Labels = nanos, profiles.Labels{{Name: profileTypeLabel, Value: id}, {Name: "service_name", Value: service}}
	if version != "" {
		p.Labels = append(p.Labels, profiles.Label{Name: "version", Value: version})
	}
	return p
}

func ask[Q, A any](t *testing.T, method func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), request *Q) *A {
	t.Helper()
	response, err := method(t.Context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	return response.Msg
}

func TestWindowCountsBothEndsAndOneType(t *testing.T) {
	ms := func(n int64) int64 { return (noon + n) * millisecond }
	s := New(memory{
		at(ms(0)-1, allocBytes, "llm", "v1", map[string]int64{"a": 1}),
		at(ms(0), allocBytes, "llm", "v1", map[string]int64{"a": 2}),
		at(ms(5), inUseBytes, "llm", "v1", map[string]int64{"a": 4}),
		at(ms(5), allocBytes, "other", "v1", map[string]int64{"a": 8}),
		at(ms(10)+999_999, allocBytes, "llm", "v2", map[string]int64{"a": 16}),
		at(ms(11), allocBytes, "llm", "v2", map[string]int64{"a": 32}),
	})
	for _, row := range []struct {
		name, id, selector string
		want               int64
	}{
		{"both ends", allocBytes, `{service_name="llm"}`, 2 + 16},
		{"every service", allocBytes, `{}`, 2 + 8 + 16},
		{"another type", inUseBytes, `{}`, 4},
		{"a type as older versions called it", inUseBytes + ":delta", `{}`, 4},
		{"a type that nobody pushed", "a:b:c:d:e", `{}`, 0},
		{"nothing selected", allocBytes, `{version="v3"}`, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			answer := ask(t, s.SelectMergeStacktraces, &querierv1.SelectMergeStacktracesRequest{
				ProfileTypeID: row.id, LabelSelector: row.selector, Start: noon, End: noon + 10,
			})
			if answer.Flamegraph.Total != row.want {
				t.Errorf("total %d, want %d", answer.Flamegraph.Total, row.want)
			}
		})
	}
}

func TestCallSiteSelectsStacksUnderIt(t *testing.T) {
	s := New(memory{at(noon*millisecond, allocBytes, "llm", "", map[string]int64{"main a x": 1, "main b": 2, "other main a": 4, "main": 8})})
	answer := ask(t, s.SelectMergeStacktraces, &querierv1.SelectMergeStacktracesRequest{
		ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon,
		StackTraceSelector: &typesv1.StackTraceSelector{CallSite: []*typesv1.Location{{Name: "main"}, {Name: "a"}}},
	})
	if got := answer.Flamegraph.Total; got != 1 {
		t.Errorf("total %d, want 1", got)
	}
}

func TestDiffTellsVersionsApart(t *testing.T) {
	s := New(memory{
		at(noon*millisecond, allocBytes, "llm", "v1", map[string]int64{"main load": 100, "main cache": 10}),
		at(noon*millisecond, allocBytes, "llm", "v2", map[string]int64{"main load": 100, "main cache": 70, "main new": 5}),
	})
	side := func(version string) *querierv1.SelectMergeStacktracesRequest {
		return &querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: `{version="` + version + `"}`, Start: noon, End: noon}
	}
	graph := ask(t, s.Diff, &querierv1.DiffRequest{Left: side("v1"), Right: side("v2")}).Flamegraph
	want := [][]int64{
		{0, 110, 0, 0, 175, 0, 0}, {0, 110, 0, 0, 175, 0, 1},
		{0, 10, 10, 0, 70, 70, 2, 0, 100, 100, 0, 100, 100, 3, 0, 0, 0, 0, 5, 5, 4},
	}
	if !reflect.DeepEqual(levels(graph.Levels), want) || graph.LeftTicks != 110 || graph.RightTicks != 175 {
		t.Errorf("got %v", graph)
	}
}

func TestSelectSeries(t *testing.T) {
	second := int64(1_000_000_000)
	from := noon * millisecond
	s := New(memory{
		at(from-15*second, allocBytes, "llm", "v1", map[string]int64{"a": 1}), // at the start of the first step, which counts
		at(from-15*second+millisecond, allocBytes, "llm", "v1", map[string]int64{"a": 2}),
		at(from, allocBytes, "llm", "v1", map[string]int64{"a": 4}),
		at(from+millisecond, allocBytes, "llm", "v1", map[string]int64{"a": 8, "b": 16}),
		at(from+15*second, allocBytes, "llm", "v2", map[string]int64{"a": 32}),
		at(from+40*second, allocBytes, "llm", "", map[string]int64{"a": 64}),
		at(from+46*second, allocBytes, "llm", "v1", map[string]int64{"a": 128}), // after the last point
	})
	for _, row := range []struct {
		name    string
		groupBy []string
		limit   int64
		step    float64
		want    []string
	}{
		{"one line", nil, 0, 15, []string{": 0=7 15=56 45=64"}},
		{"by version", []string{"version"}, 0, 15, []string{": 45=64", "version=v2: 15=32", "version=v1: 0=7 15=24"}},
		{"by two labels", []string{"service_name", "version"}, 0, 15, []string{"service_name=llm: 45=64", "service_name=llm version=v2: 15=32", "service_name=llm version=v1: 0=7 15=24"}},
		{"the greatest two", []string{"version"}, 2, 15, []string{": 45=64", "version=v2: 15=32"}},
		{"a part of a second", nil, 0, 0.5, []string{": 0=4 0.5=24 15=32 40=64 46=128"}},
		{"a step longer than the window", nil, 0, 3600, []string{": 0=7"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			answer := ask(t, s.SelectSeries, &querierv1.SelectSeriesRequest{
				ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon + 50_000, Step: row.step, GroupBy: row.groupBy, Limit: &row.limit,
			})
			var got []string
			for _, series := range answer.Series {
				var labels, points []string
				for _, label := range series.Labels {
					labels = append(labels, label.Name+"="+label.Value)
				}
				for _, p := range series.Points {
					points = append(points, fmt.Sprintf("%v=%v", float64(p.Timestamp-noon)/1000, p.Value))
				}
				got = append(got, strings.Join(labels, " ")+": "+strings.Join(points, " "))
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	s := New(memory{})
	merge := func(change func(*querierv1.SelectMergeStacktracesRequest)) error {
		r := &querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon}
		change(r)
		_, err := s.SelectMergeStacktraces(t.Context(), connect.NewRequest(r))
		return err
	}
	line := func(step float64) error {
		_, err := s.SelectSeries(t.Context(), connect.NewRequest(&querierv1.SelectSeriesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon, Step: step}))
		return err
	}
	type request = querierv1.SelectMergeStacktracesRequest
	many := int64(maxNodes + 1)
	_, noName := s.LabelValues(t.Context(), connect.NewRequest(&typesv1.LabelValuesRequest{Start: noon, End: noon}))
	_, badMatcher := s.LabelNames(t.Context(), connect.NewRequest(&typesv1.LabelNamesRequest{Matchers: []string{""}, Start: noon, End: noon}))
	_, oneSide := s.Diff(t.Context(), connect.NewRequest(&querierv1.DiffRequest{Left: &request{}}))
	_, heatmap := s.SelectHeatmap(t.Context(), connect.NewRequest(&querierv1.SelectHeatmapRequest{}))
	const bad, unimplemented = connect.CodeInvalidArgument, connect.CodeUnimplemented
	for _, row := range []struct {
		name string
		err  error
		code connect.Code
		says string
	}{
		{"empty selector", merge(func(r *request) { r.LabelSelector = "" }), bad, "{} selects everything"},
		{"no type", merge(func(r *request) { r.ProfileTypeID = "" }), bad, "profile_typeID"},
		{"type of seven parts", merge(func(r *request) { r.ProfileTypeID += ":delta:x" }), bad, "profile_typeID"},
		{"no time", merge(func(r *request) { r.Start = 0 }), bad, "missing time range"},
		{"nanoseconds", merge(func(r *request) { r.Start, r.End = noon*millisecond, noon*millisecond }), bad, "milliseconds"},
		{"turned round", merge(func(r *request) { r.End-- }), bad, "after its end"},
		{"over a day", merge(func(r *request) { r.End += 24*3600*1000 + 1 }), bad, "query length: 24h0m0.001s, limit: 24h0m0s"},
		{"too many nodes", merge(func(r *request) { r.MaxNodes = &many }), bad, "max_nodes"},
		{"step of nothing", line(0), bad, "step"},
		{"step that is no number", line(math.NaN()), bad, "step"},
		{"no label", noName, bad, "name"},
		{"empty matcher", badMatcher, bad, "{} selects everything"},
		{"diff of one side", oneSide, bad, "both"},
		{"format", merge(func(r *request) { r.Format = querierv1.ProfileFormat_PROFILE_FORMAT_DOT }), unimplemented, "PROFILE_FORMAT_DOT"},
		{"profile ID", merge(func(r *request) { r.ProfileIdSelector = []string{"x"} }), unimplemented, "profile_id_selector"},
		{"span", merge(func(r *request) { r.SpanSelector = []string{"x"} }), unimplemented, "span_selector"},
		{"trace", merge(func(r *request) { r.TraceIdSelector = []string{"x"} }), unimplemented, "trace_id_selector"},
		{"call not known", heatmap, unimplemented, "SelectHeatmap"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if connect.CodeOf(row.err) != row.code || !strings.Contains(row.err.Error(), row.says) {
				t.Errorf("%v, want %v that says %q", row.err, row.code, row.says)
			}
		})
	}
	if err := merge(func(r *request) { r.End += 24 * 3600 * 1000 }); err != nil {
		t.Error("a day is allowed, but:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full := New(memory{at(noon*millisecond, allocBytes, "llm", "", map[string]int64{"a": 1})})
	if _, err := full.SelectSeries(ctx, connect.NewRequest(&querierv1.SelectSeriesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon, Step: 1})); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled query: %v", err)
	}
}
