package symbols_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/vramprof/vramprof/agent/symbols"
	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/symbolizer"
)

// service is a real symbolizer behind a door that counts who goes in, and can be shut.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	handler http.Handler
	door    http.HandlerFunc // nil: open; else it may let in by doing nothing, or answer
	calls   map[string]int
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{calls: map[string]int{}}
	s.replace(t)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls[path.Base(r.URL.Path)]++
		handler, door := s.handler, s.door
		s.mu.Unlock()
		if door != nil {
			answer := &answered{ResponseWriter: w}
			if door(answer, r); answer.done || r.Context().Err() != nil {
				return
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

type answered struct {
	http.ResponseWriter
	done bool
}

func (a *answered) WriteHeader(status int) {
	a.done = true
	a.ResponseWriter.WriteHeader(status)
}

// replace puts a symbolizer there that knows nothing.
func (s *service) replace(t *testing.T) {
	t.Helper()
	real, err := symbolizer.New(symbolizer.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = real.Handler()
}

func (s *service) shut(door http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.door = door
}

func (s *service) called() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = map[string]int{}
	return out
}

// files are a source of the ELF files that it was given.
type files struct {
	paths map[string]string
	gate  chan struct{} // if not nil, a file is read after it is closed
	mu    sync.Mutex
	reads int
}

func (f *files) WriteObject(id string, w io.Writer) error {
	f.mu.Lock()
	f.reads++
	f.mu.Unlock()
	if f.gate != nil {
		<-f.gate
	}
	name, ok := f.paths[id]
	if !ok {
		return fmt.Errorf("%s: %w", id, os.ErrNotExist)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return elfobj.Reduce(w, file, info.Size())
}

func (f *files) add(t *testing.T, name string) (id string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := elfobj.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if id, err = elf.Identity(); err != nil {
		t.Fatal(err)
	}
	if f.paths == nil {
		f.paths = map[string]string{}
	}
	f.paths[id] = name
	return id
}

// bed is a client, its service and what it may ask about.
type bed struct {
	*symbols.Client
	service *service
	files   *files
	metrics *prometheus.Registry
	clock   *clock
	native  []symbols.Native
	names   []string // of native, by nm
	python  []symbols.Python
	lines   []int32 // of python, by the interpreter
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

func newBed(t *testing.T, change func(*symbols.Options)) *bed {
	t.Helper()
	b := &bed{service: newService(t), files: &files{}, metrics: prometheus.NewRegistry(), clock: &clock{now: time.Unix(1_786_000_000, 0)}}
	library := build(t)
	id := b.files.add(t, library)
	for _, s := range nm(t, library) {
		b.native = append(b.native, symbols.Native{BuildID: id, Object: filepath.Base(library), Address: s.address + 1})
		b.names = append(b.names, s.name)
	}
	b.python, b.lines = pythonPlaces(t)
	o := symbols.Options{
		URL: b.service.URL, Source: b.files, Deadline: 20 * time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: b.metrics, Now: b.clock.Now,
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.Client, err = symbols.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// named fails the test unless every place has its name and line.
func (b *bed) named(t *testing.T) {
	t.Helper()
	native, python := b.Resolve(t.Context(), b.native, b.python)
	for i, l := range native {
		if l.Outcome != symbols.Resolved || l.Lines[0].Function != b.names[i] {
			t.Fatalf("%+v: %v, want %s", b.native[i], l, b.names[i])
		}
	}
	for i, l := range python {
		if l.Outcome != symbols.Resolved || len(l.Lines) != 1 || l.Lines[0].Line != b.lines[i] || l.Lines[0].Function != b.python[i].Code.QualName {
			t.Fatalf("%+v: %v, want line %d", b.python[i], l, b.lines[i])
		}
	}
}

// unnamed fails the test unless every place has the fallback.
func (b *bed) unnamed(t *testing.T, want symbols.Outcome) {
	t.Helper()
	native, python := b.Resolve(t.Context(), b.native, b.python)
	if len(native) != len(b.native) || len(python) != len(b.python) {
		t.Fatalf("%d and %d answers", len(native), len(python))
	}
	for _, l := range native {
		if l.Outcome != want || len(l.Lines) != 0 {
			t.Fatalf("%v, want %v", l, want)
		}
	}
	for i, l := range python {
		code := b.python[i].Code
		if l.Outcome != want || len(l.Lines) != 1 || l.Lines[0] != (symbols.Line{Function: code.QualName, File: code.Filename, StartLine: code.FirstLine}) {
			t.Fatalf("%v, want %v", l, want)
		}
	}
}

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

func stall(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // the server notices that the client is gone only then
	<-r.Context().Done()
}

func TestAsksOnce(t *testing.T) {
	b := newBed(t, nil)
	b.named(t)
	want := map[string]int{"FindMissing": 1, "UploadObject": 1, "UploadCode": 1, "Symbolize": 1}
	if got := b.service.called(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	b.named(t)
	if got := b.service.called(); len(got) != 0 {
		t.Errorf("calls %v for what is known", got)
	}
	// another agent
	again, err := symbols.New(symbols.Options{URL: b.service.URL + "/", Source: b.files})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	b.Client = again
	b.named(t)
	want = map[string]int{"FindMissing": 1, "Symbolize": 1}
	if got := b.service.called(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v: it uploads what is there", got, want)
	}
}

func TestDownAndBack(t *testing.T) {
	for _, row := range []struct {
		name string
		door http.HandlerFunc
	}{
		{"refuses", down},
		{"stalls", stall},
		{"closes", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }},
		{"speaks of something else", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusOK)
			io.WriteString(w, "<html>")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBed(t, func(o *symbols.Options) { o.Deadline = 300 * time.Millisecond })
			b.service.shut(row.door)
			start := time.Now()
			b.unnamed(t, symbols.Unreachable)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("took %v of 300ms", took)
			}
			b.service.called()
			b.unnamed(t, symbols.Unreachable)
			if got := b.service.called(); len(got) != 0 {
				t.Errorf("tried again at once: %v", got)
			}
			if got := b.counter(t, "vramprof_symbols_locations_total", "native", "unreachable"); got != float64(2*len(b.native)) {
				t.Errorf("%v native places counted as unreachable", got)
			}
			b.service.shut(nil)
			b.clock.Add(10 * time.Second) // less than an interval
			b.eventuallyNamed(t)
		})
	}
}

// eventuallyNamed tries as the agent does, interval by interval: a short deadline may pass on a busy machine.
func (b *bed) eventuallyNamed(t *testing.T) {
	t.Helper()
	for range 50 {
		native, python := b.Resolve(t.Context(), b.native, b.python)
		if !slices.ContainsFunc(append(native, python...), func(l symbols.Location) bool { return l.Outcome != symbols.Resolved }) {
			b.named(t)
			return
		}
		b.clock.Add(15 * time.Second)
	}
	t.Fatal("names are not back")
}

func TestServiceLosesWhatItHad(t *testing.T) {
	b := newBed(t, nil)
	native, python := b.native, b.python
	b.native, b.python = native[:1], python[:1]
	b.named(t)
	b.service.replace(t)
	b.service.called()
	b.native, b.python, b.names, b.lines = native[1:], python[1:], b.names[1:], b.lines[1:]
	b.named(t)
	if got := b.service.called(); got["UploadObject"] != 1 || got["Symbolize"] != 2 {
		t.Errorf("calls %v", got)
	}
}

func TestSlowUploadIsNotWaitedFor(t *testing.T) {
	b := newBed(t, func(o *symbols.Options) { o.Deadline = 2 * time.Second })
	b.files.gate = make(chan struct{})
	start := time.Now()
	native, python := b.Resolve(t.Context(), b.native, b.python)
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("took %v of 2s", took)
	}
	if native[0].Outcome != symbols.Missing || native[0].Lines != nil {
		t.Errorf("%v of a file that is not uploaded yet", native[0])
	}
	if python[0].Outcome != symbols.Resolved {
		t.Errorf("%v waits for a file that it has nothing to do with", python[0])
	}
	close(b.files.gate)
	b.eventuallyNamed(t)
	if b.files.reads != 1 {
		t.Errorf("the file was read %d times", b.files.reads)
	}
}

func TestUploadThatCannotSucceed(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*symbols.Options)
		spoil  func(*testing.T, *bed)
		result symbols.Result
	}{
		{"no such file", nil, func(_ *testing.T, b *bed) { clear(b.files.paths) }, symbols.NoSource},
		{"too large", func(o *symbols.Options) { o.MaxObject = 100 }, nil, symbols.TooLarge},
		{"another file", nil, func(t *testing.T, b *bed) {
			for id := range b.files.paths {
				b.files.paths[id] = "/proc/self/exe"
			}
		}, symbols.Refused},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBed(t, row.change)
			if row.spoil != nil {
				row.spoil(t, b)
			}
			for range 2 {
				native, _ := b.Resolve(t.Context(), b.native, nil)
				if native[0].Outcome != symbols.Missing || native[0].Lines != nil {
					t.Errorf("%v", native[0])
				}
			}
			if b.files.reads != 1 {
				t.Errorf("tried %d times", b.files.reads)
			}
			if got := b.counter(t, "vramprof_symbols_uploads_total", "native", string(row.result)); got != 1 {
				t.Errorf("%v uploads counted as %s", got, row.result)
			}
			b.clock.Add(time.Hour)
			b.Resolve(t.Context(), b.native, nil)
			if b.files.reads != 2 {
				t.Errorf("tried %d times in an hour", b.files.reads)
			}
		})
	}
}

func TestBrokenCodeCostsNoOther(t *testing.T) {
	b := newBed(t, nil)
	broken := symbols.Python{Code: &symbols.Code{MinorVersion: 4000, Filename: "/x.py", QualName: "X.\xff", FirstLine: 7}}
	_, python := b.Resolve(t.Context(), nil, append([]symbols.Python{broken}, b.python...))
	if want := (symbols.Line{Function: "X.\uFFFD", File: "/x.py", StartLine: 7}); python[0].Outcome != symbols.Missing || python[0].Lines[0] != want {
		t.Errorf("%v", python[0])
	}
	for i, l := range python[1:] {
		if l.Outcome != symbols.Resolved || l.Lines[0].Line != b.lines[i] {
			t.Errorf("%v, want line %d", l, b.lines[i])
		}
	}
	b.service.called()
	b.Resolve(t.Context(), nil, []symbols.Python{broken})
	if got := b.service.called(); got["UploadCode"] != 0 {
		t.Errorf("calls %v for a code object that was refused", got)
	}
}

func TestFileWithoutIdentity(t *testing.T) {
	b := newBed(t, nil)
	native, _ := b.Resolve(t.Context(), []symbols.Native{{Object: "gone", Address: 1}, b.native[0]}, nil)
	if native[0].Outcome != symbols.Unnamed || native[0].Lines != nil || native[1].Outcome != symbols.Resolved {
		t.Errorf("%v", native)
	}
}

func TestManyPlaces(t *testing.T) {
	b := newBed(t, func(o *symbols.Options) { o.CacheBytes = 1 << 20 })
	many := make([]symbols.Native, 25_000)
	for i := range many {
		many[i] = b.native[0]
		many[i].Address = uint64(i) << 32
	}
	native, _ := b.Resolve(t.Context(), append(many, many...), nil)
	for _, l := range native {
		if l.Outcome != symbols.NoSymbol {
			t.Fatalf("%v", l)
		}
	}
	if got := b.service.called()["Symbolize"]; got != 3 {
		t.Errorf("%d calls for 25,000 places, want batches of 10,000", got)
	}
	if got := b.gauge(t, "vramprof_symbols_cache_bytes"); got > 1<<20 {
		t.Errorf("cache of %v bytes, over 1 MiB", got)
	}
}

func TestAnswerTooLarge(t *testing.T) {
	b := newBed(t, nil)
	b.named(t)
	first := true
	b.service.shut(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "Symbolize" && first {
			first = false
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"code":"resource_exhausted","message":"ask for fewer"}`)
		}
	})
	for i := range b.native {
		b.native[i].Address++
	}
	b.named(t)
}

func TestManyAtOnce(t *testing.T) {
	b := newBed(t, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			native, python := b.Resolve(t.Context(), b.native, b.python)
			for _, l := range append(native, python...) {
				if l.Outcome != symbols.Resolved {
					t.Errorf("%v", l)
					return
				}
			}
		})
	}
	all.Wait()
	if b.files.reads != 1 {
		t.Errorf("the file was uploaded %d times", b.files.reads)
	}
}

func TestCallerGoesAway(t *testing.T) {
	b := newBed(t, nil)
	b.service.shut(stall)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	native, _ := b.Resolve(ctx, b.native, nil)
	if native[0].Outcome != symbols.Unreachable {
		t.Errorf("%v", native[0])
	}
	b.service.shut(nil)
	b.named(t) // the service is not to blame
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]symbols.Options{
		"no URL":    {Source: &files{}},
		"no scheme": {URL: "symbolizer:8089", Source: &files{}},
		"no source": {URL: "http://symbolizer:8089"},
	} {
		if _, err := symbols.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	registry := prometheus.NewRegistry()
	o := symbols.Options{URL: "http://symbolizer:8089", Source: &files{}, Registerer: registry}
	_, first := symbols.New(o)
	_, second := symbols.New(o)
	if already := (prometheus.AlreadyRegisteredError{}); first != nil || !errors.As(second, &already) {
		t.Errorf("%v, %v", first, second)
	}
}

func (b *bed) counter(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %v", name, labels)
	return 0
}

func (b *bed) gauge(t *testing.T, name string) float64 {
	t.Helper()
	b.Resolve(t.Context(), nil, nil)
	return b.counter(t, name)
}

func TestMetricsAreWellFormed(t *testing.T) {
	b := newBed(t, nil)
	b.named(t)
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
