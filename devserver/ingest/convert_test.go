package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// simple is a profile with two sample types and one sample, main over alloc. Its
// table of strings begins as the constants say.
func simple() *googlev1.Profile {
	return &googlev1.Profile{
		StringTable: []string{"", "alloc_bytes", "bytes", "alloc_objects", "count", "gpu", "main", "alloc", "a.py", "torch.so", "c0ffee", "stream", "7"},
		SampleType:  []*googlev1.ValueType{{Type: 1, Unit: 2}, {Type: 3, Unit: 4}},
		PeriodType:  &googlev1.ValueType{Type: 5, Unit: 2},
		TimeNanos:   now.UnixNano(), DurationNanos: 15e9,
		Mapping:  []*googlev1.Mapping{{Id: 1, Filename: 9, BuildId: 10}},
		Function: []*googlev1.Function{{Id: 1, Name: 6, Filename: 8}, {Id: 2, Name: 7, SystemName: 7, Filename: 8}},
		Location: []*googlev1.Location{
			{Id: 1, MappingId: 1, Line: []*googlev1.Line{{FunctionId: 1, Line: 10}}},
			{Id: 2, MappingId: 1, Line: []*googlev1.Line{{FunctionId: 2, Line: 20}}},
		},
		Sample: []*googlev1.Sample{{LocationId: []uint64{2, 1}, Value: []int64{100, 1}}},
	}
}

const (
	strStream, strSeven = 11, 12
)

var (
	frameMain  = profiles.Frame{Function: "main", File: "a.py", Line: 10, Mapping: "torch.so", BuildID: "c0ffee"}
	frameAlloc = profiles.Frame{Function: "alloc", SystemName: "alloc", File: "a.py", Line: 20, Mapping: "torch.so", BuildID: "c0ffee"}
)

func marshal(t testing.TB, p *googlev1.Profile) []byte {
	t.Helper()
	b, err := p.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func push(raw []byte, labels ...string) *pushv1.RawProfileSeries {
	s := &pushv1.RawProfileSeries{Samples: []*pushv1.RawSample{{RawProfile: raw}}}
	for i := 0; i < len(labels); i += 2 {
		s.Labels = append(s.Labels, &typesv1.LabelPair{Name: labels[i], Value: labels[i+1]})
	}
	return s
}

// flat is what one series of a profile says, without references.
type flat struct {
	Labels                   profiles.Labels
	TimeNanos, DurationNanos int64
	Samples                  []flatSample
}

type flatSample struct {
	Stack []profiles.Frame
	Value int64
}

// convert is Convert with every series by itself. It checks what holds for every profile.
func convert(t testing.TB, s *pushv1.RawProfileSeries) ([]flat, error) {
	t.Helper()
	got, err := Convert(s, now)
	var all []flat
	for _, p := range got {
		if err := p.Check(); err != nil {
			t.Fatalf("%v in %v", err, p)
		}
		if len(p.Series) == 0 || len(p.Samples) == 0 {
			t.Errorf("profile without series or samples: %v", p)
		}
		for i, labels := range p.Series {
			one := flat{Labels: labels, TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos}
			for _, sample := range p.Samples {
				if sample.Values[i] == 0 {
					continue
				}
				var stack []profiles.Frame
				for _, f := range sample.Stack {
					stack = append(stack, p.Frames[f])
				}
				one.Samples = append(one.Samples, flatSample{stack, sample.Values[i]})
			}
			all = append(all, one)
		}
	}
	return all, err
}

// values maps the profile type to the values of its samples, in order.
func values(ps []flat) map[string][]int64 {
	m := map[string][]int64{}
	for _, p := range ps {
		t, _ := p.Labels.Get("__type__")
		for _, s := range p.Samples {
			m[t] = append(m[t], s.Value)
		}
	}
	return m
}

func TestConvert(t *testing.T) {
	raw := marshal(t, simple())
	want := func(sampleType, unit string, value int64) flat {
		return flat{
			Labels: profiles.Labels{
				{Name: "__name__", Value: "gpu"}, {Name: "__period_type__", Value: "gpu"}, {Name: "__period_unit__", Value: "bytes"},
				{Name: "__profile_type__", Value: "gpu:" + sampleType + ":" + unit + ":gpu:bytes"},
				{Name: "__service_name__", Value: "train"}, {Name: "__type__", Value: sampleType}, {Name: "__unit__", Value: unit},
				{Name: "service_name", Value: "train"},
			},
			TimeNanos: now.UnixNano(), DurationNanos: 15e9,
			Samples: []flatSample{{Stack: []profiles.Frame{frameAlloc, frameMain}, Value: value}},
		}
	}
	for name, raw := range map[string][]byte{"plain": raw, "gzip": zipped(t, raw)} {
		t.Run(name, func(t *testing.T) {
			got, err := convert(t, push(raw, "service_name", "train", "__name__", "gpu", "pod", "", "__session_id__", "x", "__delta__", "false", "__type__", "mine"))
			if err != nil {
				t.Fatal(err)
			}
			if all := []flat{want("alloc_bytes", "bytes", 100), want("alloc_objects", "count", 1)}; !reflect.DeepEqual(got, all) {
				t.Errorf("got  %v\nwant %v", got, all)
			}
		})
	}
}

func TestLabelsTheServerAdds(t *testing.T) {
	p := simple()
	p.PeriodType = nil
	got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"service_name": "unknown_service", "__service_name__": "unknown_service",
		"__profile_type__": "gpu:alloc_bytes:bytes::", "__period_type__": "", "__period_unit__": "",
	} {
		if v, ok := got[0].Labels.Get(name); v != want || ok != (want != "") {
			t.Errorf("label %s is %q, %v; want %q", name, v, ok, want)
		}
	}
}

func TestContent(t *testing.T) {
	sample := func(values ...int64) *googlev1.Sample {
		return &googlev1.Sample{LocationId: []uint64{2, 1}, Value: values}
	}
	for _, row := range []struct {
		name string
		edit func(*googlev1.Profile)
		want map[string][]int64
	}{
		{"as it is", func(p *googlev1.Profile) {}, map[string][]int64{"alloc_bytes": {100}, "alloc_objects": {1}}},
		{"no samples", func(p *googlev1.Profile) { p.Sample = nil }, map[string][]int64{}},
		{"only zeros", func(p *googlev1.Profile) { p.Sample = []*googlev1.Sample{sample(0, 0)} }, map[string][]int64{}},
		{"zero of one type", func(p *googlev1.Profile) { p.Sample = append(p.Sample, &googlev1.Sample{Value: []int64{0, 3}}) },
			map[string][]int64{"alloc_bytes": {100}, "alloc_objects": {1, 3}}},
		{"a negative value drops the sample for every type", func(p *googlev1.Profile) {
			p.Sample = append(p.Sample, sample(-1, 5), sample(7, -5))
		}, map[string][]int64{"alloc_bytes": {100}, "alloc_objects": {1}}},
		{"equal stacks are summed", func(p *googlev1.Profile) { p.Sample = append(p.Sample, sample(11, 2), sample(0, 4)) },
			map[string][]int64{"alloc_bytes": {111}, "alloc_objects": {7}}},
		{"a sum stays within its type", func(p *googlev1.Profile) { p.Sample = append(p.Sample, sample(math.MaxInt64, 2)) },
			map[string][]int64{"alloc_bytes": {math.MaxInt64}, "alloc_objects": {3}}},
		{"numbers and trace IDs as labels do not split", func(p *googlev1.Profile) {
			p.StringTable = append(p.StringTable, "span_id", "trace_id", "profile_id")
			for i := range int64(3) {
				s := sample(1, 1)
				s.Label = []*googlev1.Label{{Key: strStream, Num: i}, {Key: 13 + i, Str: strSeven}}
				p.Sample = append(p.Sample, s)
			}
		}, map[string][]int64{"alloc_bytes": {103}, "alloc_objects": {4}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := simple()
			row.edit(p)
			got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
			if err != nil {
				t.Fatal(err)
			}
			if got := values(got); !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

func TestTime(t *testing.T) {
	for _, row := range []struct {
		name   string
		nanos  int64
		want   int64
		reason Reason
	}{
		{"none is the server's", 0, now.UnixNano(), ""},
		{"an hour old", now.Add(-time.Hour).UnixNano(), now.Add(-time.Hour).UnixNano(), ""},
		{"more than an hour old", now.Add(-time.Hour).UnixNano() - 1, 0, ReasonTooOld},
		{"before 1970 is the server's", -1, now.UnixNano(), ""},
		{"ten minutes ahead", now.Add(10 * time.Minute).UnixNano(), now.Add(10 * time.Minute).UnixNano(), ""},
		{"more than ten minutes ahead", now.Add(10*time.Minute).UnixNano() + 1, 0, ReasonTooNew},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := simple()
			p.TimeNanos = row.nanos
			got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
			if row.reason != "" {
				wantRefusal(t, err, row.reason, connect.CodeInvalidArgument)
				return
			}
			if err != nil || got[0].TimeNanos != row.want {
				t.Errorf("got %v, %v; want %d", got, err, row.want)
			}
		})
	}
}

func TestStringLabelsOfSamplesMakeSeries(t *testing.T) {
	p := simple()
	p.StringTable = append(p.StringTable, "pod", "other")
	label := func(kv ...int64) *googlev1.Sample {
		s := &googlev1.Sample{LocationId: []uint64{2, 1}, Value: []int64{1, 0}}
		for i := 0; i < len(kv); i += 2 {
			s.Label = append(s.Label, &googlev1.Label{Key: kv[i], Str: kv[i+1]})
		}
		return s
	}
	p.Sample = append(p.Sample, label(strStream, strSeven), label(13, 14, strStream, strSeven), label(13, 14), label(strStream, 14))
	got, err := convert(t, push(marshal(t, p), "__name__", "gpu", "pod", "a"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, p := range got {
		if typ, _ := p.Labels.Get("__type__"); typ != "alloc_bytes" {
			continue
		}
		stream, ok := p.Labels.Get("stream")
		pod, _ := p.Labels.Get("pod")
		sums[fmt.Sprint(stream, ok, pod)] += p.Samples[0].Value
	}
	if want := map[string]int64{"falsea": 101, "7truea": 2, "othertruea": 1}; !reflect.DeepEqual(sums, want) {
		t.Errorf("got %v, want %v", sums, want)
	}
}

func TestStacks(t *testing.T) {
	p := simple()
	p.Location[1].Line = append(p.Location[1].Line, &googlev1.Line{FunctionId: 1, Line: 99}) // alloc is inlined into main
	p.Location = append(p.Location, &googlev1.Location{Id: 9, MappingId: 1, Address: 0xabc}, &googlev1.Location{Id: 10, Address: 0xd})
	p.Sample[0].LocationId = []uint64{9, 10, 2, 1}
	got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	caller := frameMain
	caller.Line = 99
	frameAlloc := frameAlloc
	frameAlloc.Inlined = true
	want := []profiles.Frame{{Function: "torch.so!0xabc", Mapping: "torch.so", BuildID: "c0ffee"}, {Function: "unknown!0xd"}, frameAlloc, caller, frameMain}
	if !reflect.DeepEqual(got[0].Samples[0].Stack, want) {
		t.Errorf("got %v, want %v", got[0].Samples[0].Stack, want)
	}
}

func TestDeepStackKeepsItsRoot(t *testing.T) {
	p := simple()
	p.Sample[0].LocationId = nil
	for i := range uint64(1500) {
		p.Location = append(p.Location, &googlev1.Location{Id: 100 + i, Address: i})
		p.Sample[0].LocationId = append(p.Sample[0].LocationId, 100+i)
	}
	got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	stack := got[0].Samples[0].Stack
	if len(stack) != 1000 || stack[0].Function != "unknown!0x1f4" || stack[999].Function != "unknown!0x5db" {
		t.Errorf("%d frames from %v to %v", len(stack), stack[0], stack[len(stack)-1])
	}
}

func TestLongSymbolKeepsItsEnd(t *testing.T) {
	p := simple()
	p.StringTable[7] = "é" + strings.Repeat("x", 65533) + "z" // the cut falls in é
	got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if f := got[0].Samples[0].Stack[0].Function; f != strings.Repeat("x", 65533)+"z" {
		t.Errorf("%d bytes, %.10q", len(f), f)
	}
}

// TestAgainstPprof compares the sums by function with those that pprof's own
// reader sees.
func TestAgainstPprof(t *testing.T) {
	p := simple()
	for i := range int64(200) {
		p.Sample = append(p.Sample, &googlev1.Sample{LocationId: []uint64{uint64(i%2 + 1), uint64(i%3%2 + 1)}, Value: []int64{i * 1000, i}})
	}
	raw := marshal(t, p)
	ref, err := profile.ParseUncompressed(slices.Clone(raw))
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]int64{}, map[string]int64{}
	for _, s := range ref.Sample {
		for i, typ := range ref.SampleType {
			want[typ.Type+" "+s.Location[0].Line[0].Function.Name] += s.Value[i]
		}
	}
	all, err := convert(t, push(raw, "__name__", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		typ, _ := p.Labels.Get("__type__")
		for _, s := range p.Samples {
			got[typ+" "+s.Stack[0].Function] += s.Value
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGoodProfilesBesideABadOne(t *testing.T) {
	s := push(marshal(t, simple()), "__name__", "gpu")
	old := simple()
	old.TimeNanos = 1
	later := simple()
	later.TimeNanos++
	s.Samples = append(s.Samples, &pushv1.RawSample{RawProfile: marshal(t, old)}, nil, &pushv1.RawSample{RawProfile: marshal(t, later)})
	got, err := convert(t, s)
	wantRefusal(t, err, ReasonTooOld, connect.CodeInvalidArgument)
	if want := map[string][]int64{"alloc_bytes": {100, 100}, "alloc_objects": {1, 1}}; !reflect.DeepEqual(values(got), want) {
		t.Errorf("got %v, want %v", values(got), want)
	}
}

func wantRefusal(t *testing.T, err error, reason Reason, code connect.Code) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("error %v is not a refusal", err)
	}
	if !slices.Contains(Reasons(), r.Reason) {
		t.Errorf("reason %s is not in the list", r.Reason)
	}
	if r.Reason != reason || r.Code != code || r.Message == "" {
		t.Errorf("refused for %s with %s: %q; want %s with %s", r.Reason, r.Code, r.Message, reason, code)
	}
}
