package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/profiles"
)

var epoch = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func all(profiles.Labels) bool { return true }

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return epoch }
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// profile is one of n samples with stacks of the given depth, all different.
func profile(name string, nanos int64, n, depth int) profiles.Profile {
	p := profiles.Profile{
		Series:    []profiles.Labels{{{Name: "__profile_type__", Value: "gpu:gpu_alloc_bytes:bytes:gpu:bytes"}, {Name: "pod", Value: name}}},
		TimeNanos: nanos, DurationNanos: 15e9, Frames: []profiles.Frame{}, Samples: make([]profiles.Sample, n),
	}
	places := map[profiles.Frame]uint32{}
	for i := range p.Samples {
		p.Samples[i] = profiles.Sample{Stack: []uint32{}, Values: []int64{int64(i)<<20 + 1}}
		for d := range depth {
			f := profiles.Frame{
				Function: fmt.Sprintf("at::native::f%d", (i*7+d)%600), SystemName: fmt.Sprintf("_ZN2at6native%d", (i*7+d)%600),
				File: "aten/src/ATen/native.cpp", Line: int64(d), Mapping: "/usr/lib/libtorch.so", BuildID: "c0ffee",
			}
			if _, ok := places[f]; !ok {
				places[f] = uint32(len(p.Frames))
				p.Frames = append(p.Frames, f)
			}
			p.Samples[i].Stack = append(p.Samples[i].Stack, places[f])
		}
	}
	return p
}

// selected has each series as a profile of its own.
func selected(t testing.TB, s *Store, from, to int64) []profiles.Profile {
	t.Helper()
	var got []profiles.Profile
	if err := s.Select(context.Background(), all, from, to, func(p *profiles.Selected) error { got = append(got, whole(p)); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func whole(p *profiles.Selected) profiles.Profile {
	out := profiles.Profile{Series: []profiles.Labels{p.Labels}, TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos, Frames: p.Frames, Samples: []profiles.Sample{}}
	for _, s := range p.Stacks {
		out.Samples = append(out.Samples, profiles.Sample{Stack: s.Frames, Values: []int64{s.Value}})
	}
	return out
}

func add(t testing.TB, s *Store, ps ...profiles.Profile) {
	t.Helper()
	if err := s.Append(context.Background(), ps); err != nil {
		t.Fatal(err)
	}
}

func at(offset time.Duration) int64 { return epoch.Add(offset).UnixNano() }

func TestWhatIsAppendedComesBackAfterRestart(t *testing.T) {
	dir := t.TempDir()
	want := []profiles.Profile{profile("a", at(0), 3, 4), profile("b", at(0), 1, 0), profile("a", at(time.Second), 2, 50)}
	want[1].Samples[0].Values[0] = -1 << 63
	s := open(t, Options{Dir: dir})
	add(t, s, want[2], want[0])
	add(t, s, want[1])
	for i := range 3 {
		if got := selected(t, s, at(0), at(time.Second)); !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d restarts: got %v, want %v", i, got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, Options{Dir: dir})
	}
}

func TestSelectBounds(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for i := range 5 {
		add(t, s, profile("a", int64(10*i), 1, 1))
	}
	for _, row := range []struct {
		name     string
		from, to int64
		want     []int64
	}{
		{"both ends are included", 10, 30, []int64{10, 20, 30}},
		{"between times", 11, 29, []int64{20}},
		{"one instant", 20, 20, []int64{20}},
		{"before", -5, -1, nil},
		{"after", 41, 99, nil},
		{"reversed", 30, 10, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []int64
			for _, p := range selected(t, s, row.from, row.to) {
				got = append(got, p.TimeNanos)
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
			if got := len(s.Series(all, row.from, row.to)) == 1; got != (row.want != nil) {
				t.Errorf("series present: %v, profiles %v", got, row.want)
			}
		})
	}
}

func TestSeriesAndMatch(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	add(t, s, profile("b", 1, 1, 1), profile("a", 2, 1, 1))
	pod := func(want string) func(profiles.Labels) bool {
		return func(l profiles.Labels) bool { v, ok := l.Get("pod"); return ok && v == want }
	}
	want := []profiles.Labels{profile("a", 0, 0, 0).Series[0], profile("b", 0, 0, 0).Series[0]}
	if got := s.Series(all, 0, 0); !reflect.DeepEqual(got, want) {
		t.Errorf("all series: %v, want %v", got, want)
	}
	if got := s.Series(pod("b"), 0, 0); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("series of pod b: %v", got)
	}
	stop := errors.New("stop")
	if err := s.Select(context.Background(), pod("a"), 0, 9, func(p *profiles.Selected) error {
		if p.TimeNanos != 2 {
			t.Errorf("pod a has %v", p)
		}
		return stop
	}); !errors.Is(err, stop) {
		t.Errorf("error of the visitor: %v", err)
	}
	if _, ok := want[0].Get("absent"); ok {
		t.Error("an absent label is found")
	}
}

func TestSameProfileIsKeptOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	first, changed, other := profile("a", 5, 2, 2), profile("a", 5, 9, 9), profile("b", 5, 2, 2)
	add(t, s, first, changed)
	add(t, s, changed, other)
	s.Close()
	s = open(t, Options{Dir: dir})
	add(t, s, changed)
	if got := selected(t, s, 0, 9); !reflect.DeepEqual(got, []profiles.Profile{first, other}) {
		t.Errorf("got %v", got)
	}
}

func TestAppendIsAllOrNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), MaxBytes: 1 << 20})
	unsorted := profile("a", 2, 1, 1)
	unsorted.Series[0] = profiles.Labels{{Name: "b"}, {Name: "a"}}
	twice := profile("a", 2, 1, 1)
	twice.Series[0] = profiles.Labels{{Name: "a"}, {Name: "a"}}
	large := profile("a", 2, 1, 0)
	large.Frames = []profiles.Frame{{Function: strings.Repeat("x", maxBody)}}
	wide := profile("a", 2, 1, 1)
	wide.Series[0] = profiles.Labels{{Name: "a", Value: strings.Repeat("x", maxIdentity)}}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, row := range []struct {
		name string
		ctx  context.Context
		bad  profiles.Profile
		want string
	}{
		{"labels not sorted", context.Background(), unsorted, "not sorted"},
		{"label twice", context.Background(), twice, "are the same"},
		{"too large", context.Background(), large, "push it in parts"},
		{"labels too large", context.Background(), wide, "labels of"},
		{"cancelled", cancelled, profile("a", 2, 1, 1), "canceled"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := s.Append(row.ctx, []profiles.Profile{profile("good", 1, 1, 1), row.bad})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
			if got := selected(t, s, 0, 9); len(got) != 0 {
				t.Errorf("kept %v", got)
			}
		})
	}
}

func TestOneProcessHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatalf("second open: %v", err)
	}
	s.Close()
	open(t, Options{Dir: dir})
	if err := s.Append(context.Background(), []profiles.Profile{profile("a", 1, 1, 1)}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := s.Select(context.Background(), all, 0, 9, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("select after close: %v", err)
	}
}

func TestConcurrentAppendAndSelect(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), MaxBytes: 128 << 10})
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range 100 {
				if err := s.Append(context.Background(), []profiles.Profile{profile(fmt.Sprint(w), int64(i), 20, 10)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for {
				err := s.Select(context.Background(), all, 0, 1000, func(p *profiles.Selected) error {
					if len(p.Stacks) != 20 || len(p.Stacks[19].Frames) != 10 {
						t.Errorf("half a profile: %v", p)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				s.Series(all, 0, 0)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	for w := range 4 {
		if n := len(selected(t, s, 99, 99)); n == 0 {
			t.Errorf("nothing of the last writes is there (writer %d)", w)
		}
	}
}

// TestKill kills a process in the middle of its appends, and expects every
// profile that it said was kept.
func TestKill(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_KILL_DIR"); dir != "" {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(1 << 40) {
			add(t, s, profile("a", i, 5, 5))
			fmt.Println("kept", i)
		}
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), "STORE_TEST_KILL_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for last < 50 {
		if _, err := fmt.Fscanf(out, "kept %d\n", &last); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for { // what was said before the kill took effect counts too
		if _, err := fmt.Fscanf(out, "kept %d\n", &last); err != nil {
			break
		}
	}
	_ = cmd.Wait() // it was killed
	got := selected(t, open(t, Options{Dir: dir}), 0, last)
	if int64(len(got)) != last+1 {
		t.Errorf("%d profiles were kept, %d are there", last+1, len(got))
	}
}

// A record holds several series: each is there by itself, with its own total, and what is 0 is not.
func TestSeriesShareARecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	both := profiles.Profile{
		Series:    []profiles.Labels{{{Name: "a", Value: "1"}, {Name: "type", Value: "bytes"}}, {{Name: "a", Value: "1"}, {Name: "b", Value: "x"}, {Name: "type", Value: "count"}}},
		TimeNanos: 5, DurationNanos: 3,
		Frames:  []profiles.Frame{{Function: "f", Line: 1}, {Function: "g", File: "g.py"}},
		Samples: []profiles.Sample{{Stack: []uint32{0, 1}, Values: []int64{10, 1}}, {Stack: []uint32{1}, Values: []int64{0, 2}}, {Stack: []uint32{}, Values: []int64{7, 0}}},
	}
	add(t, s, both)
	size := s.active.size
	known := both
	known.Series, known.Samples = both.Series[:1], []profiles.Sample{{Stack: []uint32{0}, Values: []int64{99}}}
	add(t, s, known, both)
	if s.active.size != size {
		t.Error("what is there already was written again")
	}
	partly := known
	partly.Series = []profiles.Labels{both.Series[0], {{Name: "a", Value: "2"}}}
	partly.Samples = []profiles.Sample{{Stack: []uint32{1}, Values: []int64{99, 4}}}
	add(t, s, partly)
	for range 2 {
		var got []string
		err := s.Select(context.Background(), all, 0, 9, func(p *profiles.Selected) error {
			line := p.Labels.Key()
			for _, stack := range p.Stacks {
				line += fmt.Sprint(" ", stack.Value)
				for _, f := range stack.Frames {
					line += p.Frames[f].Function
				}
			}
			got = append(got, line)
			return nil
		})
		want := []string{both.Series[1].Key() + " 1fg 2g", both.Series[0].Key() + " 10fg 7", partly.Series[1].Key() + " 4g"}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
		}
		var totals []int64
		err = s.Totals(all, 0, 9, func(labels profiles.Labels, nanos, total int64) { totals = append(totals, nanos, total) })
		if want := []int64{5, 3, 5, 17, 5, 4}; err != nil || !reflect.DeepEqual(totals, want) {
			t.Errorf("%v, totals %v, want %v", err, totals, want)
		}
		s.Close()
		s = open(t, Options{Dir: dir})
	}
}

func BenchmarkAppend(b *testing.B) {
	s := open(b, Options{Dir: b.TempDir()})
	p := profile("a", 0, 300, 40)
	b.ReportAllocs()
	for b.Loop() {
		p.TimeNanos++
		add(b, s, p)
	}
}

func BenchmarkSelect(b *testing.B) {
	s := open(b, Options{Dir: b.TempDir()})
	for i := range 20 {
		add(b, s, profile("a", int64(i), 300, 40))
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(selected(b, s, 0, 99)); n != 20 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(s.active.size)/20, "bytes/profile")
}
