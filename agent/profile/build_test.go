package profile_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/agent/profile"
)

var (
	libcuda = profile.Mapping{File: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", BuildID: "gnu:00ff"}
	server  = profile.Mapping{File: "/opt/inference", BuildID: "abcd"}
	end     = time.Unix(1_786_000_005, 0)
)

func native(m profile.Mapping, functions ...string) profile.Frame {
	f := profile.Frame{Mapping: m, Address: 0x1a2b}
	for i, name := range functions {
		f.Lines = append(f.Lines, profile.Line{Function: name, File: "server.cc", Line: int64(10 + i), StartLine: int64(1 + i)})
	}
	return f
}

func python(function string, line int64) profile.Frame {
	return profile.Frame{Lines: []profile.Line{{Function: function, File: "/srv/train.py", Line: line, StartLine: 3}}}
}

func example() []profile.Stack {
	return []profile.Stack{
		{
			Frames: []profile.Frame{native(libcuda), native(server, "inlined", "Cache::grow(unsigned long)"), python("Model.forward", 12), native(server, "main")},
			Values: profile.Values{AllocBytes: 3 << 30, AllocObjects: 2, InUseBytes: 2 << 30, InUseObjects: 1, PeakBytes: 3 << 30},
		},
		{
			Frames: []profile.Frame{native(libcuda), python("main", 40), native(server, "main")},
			Values: profile.Values{AllocBytes: 1 << 30, AllocObjects: 1, FailedBytes: 80 << 30, FailedObjects: 1},
		},
	}
}

// The reference reader of pprof shows what was put in.
func TestGoToolPprof(t *testing.T) {
	p := profile.Build(profile.Options{Time: end, Comments: []string{"stacks cut: 1"}}, example())
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "gpu.pb.gz")
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		args []string
		want []string
	}{
		{"allocated", []string{"-top", "-cum", "-sample_index=gpu_alloc_bytes"}, []string{
			"File: inference", "Type: gpu_alloc_bytes", "4GB   100%", "libcuda.so.1+0x1a2b", "Model.forward", "Cache::grow", "inlined (inline)"}},
		{"default", []string{"-top"}, []string{"Type: gpu_alloc_bytes"}},
		{"objects", []string{"-top", "-sample_index=gpu_alloc_objects"}, []string{"Showing nodes accounting for 3, 100% of 3 total"}},
		{"failed", []string{"-top", "-sample_index=gpu_failed_bytes"}, []string{"of 80GB total"}},
		{"in use", []string{"-top", "-sample_index=gpu_inuse_bytes"}, []string{"of 2GB total"}},
		{"peak", []string{"-top", "-sample_index=gpu_peak_bytes"}, []string{"of 3GB total"}},
		{"comments", []string{"-comments"}, []string{"stacks cut: 1"}},
		{"lines", []string{"-raw"}, []string{"Model.forward /srv/train.py:12:0 s=3", "libcuda.so.1 00ff [FN]", "/opt/inference abcd [FN][FL][LN][IN]", "PeriodType: gpu bytes", "Period: 1\n"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, err := exec.Command("go", append(append([]string{"tool", "pprof"}, row.args...), name)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range row.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

func TestGroupsAreApart(t *testing.T) {
	for group, want := range map[profile.Group][]string{
		profile.Alloc:  {"gpu_alloc_bytes/bytes", "gpu_alloc_objects/count"},
		profile.Failed: {"gpu_failed_bytes/bytes", "gpu_failed_objects/count"},
		profile.InUse:  {"gpu_inuse_bytes/bytes", "gpu_inuse_objects/count"},
		profile.Peak:   {"gpu_peak_bytes/bytes"},
	} {
		pieces, err := profile.Pieces(profile.Options{Time: end}, example(), group)
		if err != nil || len(pieces) != 1 {
			t.Fatalf("%v: %d pieces, %v", group, len(pieces), err)
		}
		p := parse(t, pieces[0])
		var got []string
		for _, s := range p.SampleType {
			got = append(got, s.Type+"/"+s.Unit)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", group, got, want)
		}
		if group != profile.Alloc && len(p.Sample) != 1 {
			t.Errorf("%v: %d samples, want only the one with a value", group, len(p.Sample))
		}
	}
}

func TestNothingToSay(t *testing.T) {
	stacks := []profile.Stack{{Frames: []profile.Frame{python("f", 1)}, Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}}
	pieces, err := profile.Pieces(profile.Options{Time: end}, stacks, profile.Failed)
	if err != nil || pieces != nil {
		t.Fatalf("%v, %v", pieces, err)
	}
}

func TestSameBytesInAnyOrder(t *testing.T) {
	stacks := many(500, 20)
	encode := func() []byte {
		pieces, err := profile.Pieces(profile.Options{Time: end}, stacks, profile.Alloc)
		if err != nil {
			t.Fatal(err)
		}
		return pieces[0].Pprof
	}
	first := encode()
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(stacks), func(i, j int) { stacks[i], stacks[j] = stacks[j], stacks[i] })
	if !bytes.Equal(first, encode()) {
		t.Fatal("the order of the stacks shows in the profile")
	}
}

func TestEqualStacksAreSummed(t *testing.T) {
	a := example()[:1]
	b := example()[:1]
	b[0].Frames[1].Address = 7 // another call on the same line
	p := profile.Build(profile.Options{Time: end}, append(a, b...), profile.Alloc)
	if len(p.Sample) != 1 || p.Sample[0].Value[0] != 6<<30 || p.Sample[0].Value[1] != 4 {
		t.Fatalf("%v", p)
	}
}

// Bug B19: an unresolved frame has a name that is the same for all runs of a build, and its build.
func TestB19UnresolvedFrame(t *testing.T) {
	p := profile.Build(profile.Options{Time: end}, []profile.Stack{{Frames: []profile.Frame{native(libcuda)}, Values: profile.Values{AllocBytes: 1}}})
	l := p.Location[0]
	if l.Line[0].Function.Name != "libcuda.so.1+0x1a2b" || l.Mapping.BuildID != "00ff" || !l.Mapping.HasFunctions || l.Address != 0x1a2b {
		t.Fatalf("%v", p)
	}
}

// Bug B34: profiles over the server's limits are split, and deep stacks cut where nobody looks.
func TestB34Limits(t *testing.T) {
	deep := func(n int) []profile.Stack {
		s := profile.Stack{Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}
		for i := range n {
			s.Frames = append(s.Frames, python("f", int64(i+1)))
		}
		return []profile.Stack{s}
	}
	long := func(n, size int) []profile.Stack {
		s := profile.Stack{Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}
		for i := range n {
			s.Frames = append(s.Frames, python(fmt.Sprint(i, strings.Repeat("x", size)), 1))
		}
		return []profile.Stack{s}
	}
	for _, row := range []struct {
		name           string
		stacks         []profile.Stack
		pieces, frames int // at least so many pieces; so many frames of the first sample
	}{
		{"one", many(1, 5), 1, 5},
		{"40,000 samples", many(40_000, 3), 3, 3},
		{"over 1.9 MB", many(15_000, 40), 2, 40},
		{"1,000 frames", deep(1000), 1, 1000},
		{"1,001 frames", deep(1001), 1, 1000},
		{"5,000 frames", deep(5000), 1, 1000},
		{"one stack over 1.9 MB", long(1000, 10_000), 1, 125},
		{"names over 1 MB", long(3, 1<<20), 1, 3},
		{"no frames", []profile.Stack{{Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}}, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			pieces, err := profile.Pieces(profile.Options{Time: end}, row.stacks, profile.Alloc)
			if err != nil {
				t.Fatal(err)
			}
			if len(pieces) < row.pieces || len(pieces) > 2*row.pieces {
				t.Errorf("%d pieces, want %d", len(pieces), row.pieces)
			}
			var want, got [2]int64
			for _, s := range row.stacks {
				want[0], want[1] = want[0]+s.Values.AllocBytes, want[1]+s.Values.AllocObjects
			}
			for i, piece := range pieces {
				p := obeys(t, piece)
				if p.TimeNanos != end.UnixNano()+int64(i) {
					t.Errorf("piece %d has time %d", i, p.TimeNanos)
				}
				if i == 0 && len(p.Sample[0].Location) != row.frames {
					t.Errorf("%d frames, want %d", len(p.Sample[0].Location), row.frames)
				}
				for _, s := range p.Sample {
					got[0], got[1] = got[0]+s.Value[0], got[1]+s.Value[1]
				}
			}
			if got != want {
				t.Errorf("sums %v, want %v", got, want)
			}
		})
	}
}

func TestB34CutKeepsBothEnds(t *testing.T) {
	s := profile.Stack{Values: profile.Values{AllocBytes: 1}}
	for i := range 5000 {
		s.Frames = append(s.Frames, python("f", int64(i+1)))
	}
	l := profile.Build(profile.Options{Time: end}, []profile.Stack{s}).Sample[0].Location
	if l[0].Line[0].Line != 1 || l[499].Line[0].Line != 500 || l[999].Line[0].Line != 5000 {
		t.Error("an end of the stack is gone")
	}
	if got := l[500].Line[0].Function.Name; got != "[... 4001 frames cut]" {
		t.Errorf("%q in the middle", got)
	}
}

func TestHostileContent(t *testing.T) {
	bad := "\xff\xfe\x00name"
	stacks := []profile.Stack{
		{
			Frames: []profile.Frame{
				{Mapping: profile.Mapping{File: bad, BuildID: bad}, Lines: []profile.Line{{Function: bad, SystemName: bad, File: bad, Line: -1, StartLine: -1}}},
				{Lines: make([]profile.Line, 5000)},
				{},
			},
			Values: profile.Values{AllocBytes: -5, AllocObjects: 1},
		},
		{Frames: []profile.Frame{{Lines: []profile.Line{{Function: strings.Repeat("é", 1<<16)}}}}, Values: profile.Values{AllocBytes: 1}},
	}
	pieces, err := profile.Pieces(profile.Options{Time: end, Period: -1, Comments: []string{bad}}, stacks, profile.Alloc)
	if err != nil || len(pieces) != 1 {
		t.Fatal(len(pieces), err)
	}
	p := obeys(t, pieces[0])
	if want := "values below zero, shown as 0: 1"; !slices.Contains(p.Comments, want) {
		t.Errorf("comments %q, want %q", p.Comments, want)
	}
}

// many makes different stacks of a tree of calls.
func many(n, depth int) []profile.Stack {
	stacks := make([]profile.Stack, n)
	for i := range stacks {
		s := &stacks[i]
		s.Values = profile.Values{AllocBytes: int64(i + 1), AllocObjects: 1}
		for d := range depth {
			s.Frames = append(s.Frames, native(server, fmt.Sprintf("function_with_a_name_of_some_length_%d_%d", d, i>>d)))
		}
	}
	return stacks
}

func parse(t *testing.T, piece profile.Piece) *pprof.Profile {
	t.Helper()
	p, err := pprof.ParseUncompressed(piece.Pprof)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

// obeys checks a piece against the rules of a Pyroscope server.
func obeys(t *testing.T, piece profile.Piece) *pprof.Profile {
	t.Helper()
	p := parse(t, piece)
	switch {
	case len(piece.Pprof) >= 1_900_001:
		t.Errorf("%d bytes", len(piece.Pprof))
	case len(p.Sample) > 16_000 || len(p.Sample) == 0:
		t.Errorf("%d samples", len(p.Sample))
	case p.PeriodType.Type != "gpu" || p.PeriodType.Unit != "bytes" || p.Period < 1:
		t.Errorf("period %v %d", p.PeriodType, p.Period)
	case p.TimeNanos != piece.Time.UnixNano():
		t.Errorf("time %d, the piece says %v", p.TimeNanos, piece.Time)
	}
	for _, s := range p.Sample {
		if len(s.Location) == 0 || len(s.Location) > 1000 {
			t.Errorf("%d frames", len(s.Location))
		}
		for _, v := range s.Value {
			if v < 0 {
				t.Errorf("value %d", v)
			}
		}
	}
	texts := slices.Clone(p.Comments)
	for _, m := range p.Mapping {
		if !m.HasFunctions || m.ID == 0 {
			t.Errorf("mapping %v", m)
		}
		texts = append(texts, m.File, m.BuildID)
	}
	for _, l := range p.Location {
		if l.Mapping == nil || len(l.Line) == 0 {
			t.Errorf("location %v", l)
		}
	}
	for _, f := range p.Function {
		if f.Name == "" {
			t.Error("function without name")
		}
		texts = append(texts, f.Name, f.SystemName, f.Filename)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) || len(s) > 65535 {
			t.Errorf("text of %d bytes: %.40q", len(s), s)
		}
	}
	return p
}

func BenchmarkPieces(b *testing.B) {
	stacks := many(300, 40)
	for b.Loop() {
		if _, err := profile.Pieces(profile.Options{Time: end}, stacks, profile.Alloc); err != nil {
			b.Fatal(err)
		}
	}
}
