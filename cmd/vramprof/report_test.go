package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// fixture is a profile of three stacks, two of which end in one line of Python.
func fixture() *profile.Profile {
	p := &profile.Profile{}
	for _, t := range []string{"gpu_alloc_bytes", "gpu_alloc_objects", "gpu_failed_bytes", "gpu_failed_objects", "gpu_peak_bytes"} {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: t})
	}
	frame := func(object, function, file string, line int64) *profile.Location {
		return &profile.Location{
			Mapping: &profile.Mapping{File: object},
			Line:    []profile.Line{{Function: &profile.Function{Name: function, Filename: file}, Line: line}},
		}
	}
	driver, ffi := frame("libcuda.so.1", "cuMemAlloc_v2", "", 0), frame("libffi.so.8", "ffi_call", "", 0)
	forward, main := frame("[no object]", "Model.forward", "/app/model.py", 42), frame("[no object]", "<module>", "/app/train.py", 7)
	extension, library := frame("_C.so", "at::empty", "", 0), frame("[no object]", "zeros", "/usr/lib/python3/dist-packages/torch/x.py", 9)
	evaluator, server := frame("libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", "", 0), frame("server", "engine::KVCache::reserve", "", 0)
	p.Sample = []*profile.Sample{
		{Location: []*profile.Location{driver, ffi, forward, evaluator, main}, Value: []int64{600, 2, 0, 0, 500}},
		{Location: []*profile.Location{driver, extension, library, forward, main}, Value: []int64{100, 1, 0, 0, 0}},
		{Location: []*profile.Location{driver, server}, Value: []int64{300, 1, 4096, 2, 300}},
	}
	return p
}

func TestReportNamesTheLineThatAllocated(t *testing.T) {
	r := newReport(fixture(), []string{"python3", "train.py"}, 3, 2*time.Second)
	if r.AllocatedBytes != 1000 || r.Allocations != 4 || r.PeakBytes != 800 || r.FailedBytes != 4096 || r.Failed != 2 || r.ExitStatus != 3 {
		t.Errorf("totals: %+v", r)
	}
	want := []entry{
		{Function: "Model.forward", File: "/app/model.py", Line: 42, AllocatedBytes: 700, Share: 0.7, Allocations: 3, PeakBytes: 500},
		{Function: "engine::KVCache::reserve", AllocatedBytes: 300, Share: 0.3, Allocations: 1, PeakBytes: 300, FailedBytes: 4096},
	}
	if len(r.Top) != len(want) {
		t.Fatalf("top: %+v", r.Top)
	}
	for i := range want {
		if r.Top[i] != want[i] {
			t.Errorf("top %d: %+v, want %+v", i, r.Top[i], want[i])
		}
	}
}

func TestReportText(t *testing.T) {
	var b bytes.Buffer
	if err := newReport(fixture(), nil, 0, time.Second).writeText(&b, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000 B allocated in 4 allocations", "held 800 B at the peak", "refused 4.00 KiB in 2 calls", "70.0%", "Model.forward", "/app/model.py:42", "and 1 more"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "KVCache") {
		t.Errorf("more than one line:\n%s", b.String())
	}
}

func TestReportJSON(t *testing.T) {
	var b bytes.Buffer
	if err := newReport(fixture(), []string{"a"}, 0, time.Second).writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.AllocatedBytes != 1000 || len(back.Top) != 2 {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 10235: "10.0 KiB", 1 << 20: "1.00 MiB", 1<<20 - 1: "1.00 MiB", 150 << 30: "150 GiB", -2048: "-2.00 KiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
