package symbols_test

import (
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
	_, _ = io.Copy(io.Discard, r.Body) // the server notices that the client is gone only then
	<-r.Context().Done()
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
