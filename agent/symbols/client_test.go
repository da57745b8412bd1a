package symbols_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/vramprof/vramprof/agent/symbols"
)

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
			_, _ = io.WriteString(w, "<html>")
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
			_, _ = io.WriteString(w, `{"code":"resource_exhausted","message":"ask for fewer"}`)
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
