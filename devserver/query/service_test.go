package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
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

// google/pprof merges the same random profiles; its sums by stack must be those of the answer as pprof and as a flame graph.
func TestMergeAgreesWithPprof(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var source memory
	var inputs []*profile.Profile
	for i := range int64(20) {
		kept := at((noon+i)*millisecond, allocBytes, "llm", "", nil)
		input := &profile.Profile{SampleType: []*profile.ValueType{{Type: "gpu_alloc_bytes", Unit: "bytes"}}, PeriodType: &profile.ValueType{Type: "gpu", Unit: "bytes"}, Period: 1}
		object := &profile.Mapping{ID: 1, File: "/lib/libcuda.so.1", BuildID: "abcd", HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
		input.Mapping = []*profile.Mapping{object}
		known := map[profiles.Frame]*profile.Location{}
		for range 30 {
			kept.Stacks = append(kept.Stacks, profiles.Stack{Value: random.Int64N(1 << 30)})
			sample := &kept.Stacks[len(kept.Stacks)-1]
			theirs := &profile.Sample{Value: []int64{sample.Value}}
			for range 1 + random.IntN(5) {
				n := random.Int64N(4)
				frame := profiles.Frame{Function: fmt.Sprint("f", n), SystemName: fmt.Sprint("_f", n), File: "/src/f.py", Line: 1 + random.Int64N(2), Mapping: object.File, BuildID: object.BuildID}
				if known[frame] == nil {
					function := &profile.Function{ID: uint64(len(input.Function)) + 1, Name: frame.Function, SystemName: frame.SystemName, Filename: frame.File}
					location := &profile.Location{ID: uint64(len(input.Location)) + 1, Mapping: object, Line: []profile.Line{{Function: function, Line: frame.Line}}}
					input.Function, input.Location, known[frame] = append(input.Function, function), append(input.Location, location), location
				}
				place := slices.Index(kept.Frames, frame)
				if place < 0 {
					place = len(kept.Frames)
					kept.Frames = append(kept.Frames, frame)
				}
				sample.Frames = append(sample.Frames, uint32(place))
				theirs.Location = append(theirs.Location, known[frame])
			}
			input.Sample = append(input.Sample, theirs)
		}
		source, inputs = append(source, kept), append(inputs, input)
	}
	oracle, err := profile.Merge(inputs)
	if err != nil {
		t.Fatal(err)
	}

	s := New(source)
	message := ask(t, s.SelectMergeProfile, &querierv1.SelectMergeProfileRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon + 19})
	raw, err := message.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	got, err := profile.Parse(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if want := byStack(oracle, true); !maps.Equal(byStack(got, true), want) || len(got.Sample) != len(want) {
		t.Error("the sums by stack, with lines and objects, are not google/pprof's")
	}
	if got.Period != 1 || got.PeriodType.Type != "gpu" || got.SampleType[0].Type != "gpu_alloc_bytes" || got.SampleType[0].Unit != "bytes" || got.DurationNanos != 19*millisecond {
		t.Errorf("the header is %v", got)
	}

	graph := ask(t, s.SelectMergeStacktraces, &querierv1.SelectMergeStacktracesRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon + 19}).Flamegraph
	if !maps.Equal(decode(t, graph), byStack(oracle, false)) {
		t.Error("the flame graph's sums by stack are not google/pprof's")
	}
}

// byStack sums a profile by stack, from the outermost function inwards, with its lines and objects or by name alone.
func byStack(p *profile.Profile, isExact bool) map[string]int64 {
	sums := map[string]int64{}
	for _, sample := range p.Sample {
		var path []string
		for _, location := range slices.Backward(sample.Location) {
			line := location.Line[0]
			name := line.Function.Name
			if isExact {
				name = fmt.Sprint(name, line.Function.SystemName, line.Function.Filename, line.Line, location.Mapping.File, location.Mapping.BuildID)
			}
			path = append(path, name)
		}
		sums[strings.Join(path, ";")] += sample.Value[0]
	}
	return sums
}

// decode reads levels back into self values by stack: the parent of a bar is the one above that spans it.
func decode(t *testing.T, graph *querierv1.FlameGraph) map[string]int64 {
	t.Helper()
	type span struct {
		path       string
		start, end int64
	}
	sums := map[string]int64{}
	above := []span{{"", 0, graph.Total}}
	for depth, level := range graph.Levels {
		var row []span
		var at int64
		for v := range slices.Chunk(level.Values, 4) {
			at += v[0]
			i := slices.IndexFunc(above, func(s span) bool { return s.start <= at && at+v[1] <= s.end && s.start < s.end })
			if i < 0 {
				t.Fatalf("level %d: the bar at %d has no parent", depth, at)
			}
			path := above[i].path
			if depth > 0 {
				path = strings.TrimPrefix(path+";"+graph.Names[v[3]], ";")
			}
			if v[2] > 0 {
				sums[path] += v[2]
			}
			row = append(row, span{path, at, at + v[1]})
			at += v[1]
		}
		above = row
	}
	return sums
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

func TestLabels(t *testing.T) {
	s := New(memory{
		at(noon*millisecond, allocBytes, "llm", "v1", nil),
		at(noon*millisecond, inUseBytes, "llm", "v2", nil),
		at(noon*millisecond, inUseBytes, "web", "", nil),
		at((noon+1000)*millisecond, "gpu:later:bytes:gpu:bytes", "later", "v9", nil),
		at(noon*millisecond, "no type", "llm", "", nil),
	})
	types := ask(t, s.ProfileTypes, &querierv1.ProfileTypesRequest{Start: noon, End: noon + 999})
	want := []*typesv1.ProfileType{
		{ID: allocBytes, Name: "gpu", SampleType: "gpu_alloc_bytes", SampleUnit: "bytes", PeriodType: "gpu", PeriodUnit: "bytes"},
		{ID: inUseBytes, Name: "gpu", SampleType: "gpu_inuse_bytes", SampleUnit: "bytes", PeriodType: "gpu", PeriodUnit: "bytes"},
	}
	if !slices.EqualFunc(types.ProfileTypes, want, (*typesv1.ProfileType).EqualVT) {
		t.Errorf("the profile types are %v", types.ProfileTypes)
	}
	for _, row := range []struct {
		name     string
		matchers []string
		names    []string
		versions []string
	}{
		{"no matcher", nil, []string{profileTypeLabel, "service_name", "version"}, []string{"v1", "v2"}},
		{"one", []string{`{service_name="web"}`}, []string{profileTypeLabel, "service_name"}, nil},
		{"every matcher holds", []string{`{service_name="llm"}`, `{version!="v1"}`}, []string{profileTypeLabel, "service_name", "version"}, []string{"v2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			names := ask(t, s.LabelNames, &typesv1.LabelNamesRequest{Matchers: row.matchers, Start: noon, End: noon})
			if !slices.Equal(names.Names, row.names) {
				t.Errorf("names %q, want %q", names.Names, row.names)
			}
			values := ask(t, s.LabelValues, &typesv1.LabelValuesRequest{Name: "version", Matchers: row.matchers, Start: noon, End: noon})
			if !slices.Equal(values.Names, row.versions) {
				t.Errorf("versions %q, want %q", values.Names, row.versions)
			}
		})
	}
	series := ask(t, s.Series, &querierv1.SeriesRequest{LabelNames: []string{"service_name"}, Start: noon, End: noon})
	if len(series.LabelsSet) != 2 || series.LabelsSet[0].Labels[0].Value != "llm" || series.LabelsSet[1].Labels[0].Value != "web" {
		t.Errorf("the series by service are %v", series.LabelsSet)
	}
	if all := ask(t, s.Series, &querierv1.SeriesRequest{Start: noon, End: noon}); len(all.LabelsSet) != 4 {
		t.Errorf("the series are %v", all.LabelsSet)
	}
}

// A name that is no identifier is told to those who can quote it. Without a window, the types of any time are listed.
func TestNamesThatAreNoIdentifiers(t *testing.T) {
	p := at(noon*millisecond, allocBytes, "llm", "", nil)
	p.Labels = slices.Insert(p.Labels, 1, profiles.Label{Name: "k8s.pod.name", Value: "a"})
	s := New(memory{p})
	for accept, want := range map[string][]string{
		"":                                {profileTypeLabel, "service_name"},
		"*/*; allow-utf8-labelnames=true": {profileTypeLabel, "k8s.pod.name", "service_name"},
	} {
		names := connect.NewRequest(&typesv1.LabelNamesRequest{Start: noon, End: noon})
		series := connect.NewRequest(&querierv1.SeriesRequest{Start: noon, End: noon})
		names.Header().Set("Accept", accept)
		series.Header().Set("Accept", accept)
		gotNames, err := s.LabelNames(t.Context(), names)
		if err != nil || !slices.Equal(gotNames.Msg.Names, want) {
			t.Errorf("%q: %v, %v", accept, gotNames, err)
		}
		gotSeries, err := s.Series(t.Context(), series)
		if err != nil || len(gotSeries.Msg.LabelsSet[0].Labels) != len(want) {
			t.Errorf("%q: %v, %v", accept, gotSeries, err)
		}
	}
	if types := ask(t, s.ProfileTypes, &querierv1.ProfileTypesRequest{}); len(types.ProfileTypes) != 1 || types.ProfileTypes[0].ID != allocBytes {
		t.Errorf("the types of any time are %v", types)
	}
}

func TestInlinedCallsStayInTheirLocation(t *testing.T) {
	p := at(noon*millisecond, allocBytes, "llm", "", nil)
	p.Frames = []profiles.Frame{{Function: "leaf", Line: 1, Inlined: true}, {Function: "middle", Line: 2, Inlined: true}, {Function: "root", Line: 3, StartLine: 2}, {Function: "root", Line: 4, StartLine: 2}}
	p.Stacks = []profiles.Stack{{Frames: []uint32{0, 1, 2, 3}, Value: 5}, {Frames: []uint32{2, 3}, Value: 7}, {Frames: []uint32{1, 2, 3}, Value: 9}, {Frames: []uint32{0, 1, 2, 3}, Value: 1}}
	s := New(memory{p, p})
	answer := ask(t, s.SelectMergeProfile, &querierv1.SelectMergeProfileRequest{ProfileTypeID: allocBytes, LabelSelector: "{}", Start: noon, End: noon})
	var got []string
	for _, sample := range answer.Sample {
		line := fmt.Sprint(sample.Value[0])
		for _, id := range sample.LocationId {
			for i, l := range answer.Location[id-1].Line {
				line += fmt.Sprint([]string{" ", "<"}[min(i, 1)], answer.StringTable[answer.Function[l.FunctionId-1].Name], l.Line)
			}
		}
		got = append(got, line)
	}
	if want := []string{"12 leaf1<middle2<root3 root4", "14 root3 root4", "18 middle2<root3 root4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if f := answer.Function[2]; len(answer.Function) != 3 || f.StartLine != 2 {
		t.Errorf("the functions are %v", answer.Function)
	}
	if none := ask(t, s.SelectMergeProfile, &querierv1.SelectMergeProfileRequest{ProfileTypeID: inUseBytes, LabelSelector: "{}", Start: noon, End: noon}); len(none.SampleType) != 0 {
		t.Errorf("of nothing the profile is empty, not %v", none)
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
