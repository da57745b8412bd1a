package query

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

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
