package e2e_test

import (
	"testing"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

// TestTotals compares sums over all stacks with the driver's ledger, to the byte.
func TestTotals(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		// single is for one process with one thread, of which the ledger knows the peak.
		single bool
	}{
		{"one thread", []string{"--iterations", "200"}, true},
		{"kept", []string{"--iterations", "20", "--keep", "20"}, true},
		{"some kept", []string{"--iterations", "50", "--keep", "7"}, true},
		{"every function", []string{"--iterations", "120", "--mix"}, true},
		{"threads", []string{"--iterations", "300", "--threads", "4"}, false},
		{"threads with every function", []string{"--iterations", "120", "--threads", "4", "--mix"}, false},
		{"short-lived children", []string{"--iterations", "3", "--fork", "60"}, false},
		{"children that execute", []string{"--iterations", "3", "--fork", "20", "--exec"}, false},
		{"children with threads and every function", []string{"--iterations", "24", "--fork", "6", "--threads", "3", "--mix"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := ok(t, nil, append([]string{"./chain"}, test.args...)...)
			truth := wantLedger(t, o, o.calls)
			wantWhole(t, o)
			if peak := o.sum(t, "gpu_peak_bytes"); test.single && peak != truth.Peak.Bytes {
				t.Errorf("peak %d, by the ledger %d", peak, truth.Peak.Bytes)
			}
			wantReport(t, o)
		})
	}
}

// wantReport compares the summary with the profile.
func wantReport(t *testing.T, o outcome) {
	t.Helper()
	var top report
	for _, e := range o.report.Top {
		top.AllocatedBytes += e.AllocatedBytes
		top.Allocations += e.Allocations
		top.PeakBytes += e.PeakBytes
		top.FailedBytes += e.FailedBytes
	}
	for _, row := range []struct {
		name          string
		report, top   int64
		inTheProfile  string
		notByFunction bool
	}{
		{"bytes", o.report.AllocatedBytes, top.AllocatedBytes, "gpu_alloc_bytes", false},
		{"allocations", o.report.Allocations, top.Allocations, "gpu_alloc_objects", false},
		{"peak", o.report.PeakBytes, top.PeakBytes, "gpu_peak_bytes", false},
		{"refused bytes", o.report.FailedBytes, top.FailedBytes, "gpu_failed_bytes", false},
		{"refused", o.report.Failed, 0, "gpu_failed_objects", true},
	} {
		in := int64(o.sum(t, row.inTheProfile))
		if row.report != in || !row.notByFunction && row.top != in {
			t.Errorf("%s: summary %d, sum of its entries %d, profile %d", row.name, row.report, row.top, in)
		}
	}
}

// TestB45RefusedAllocationsAreCountedApartAndFailedFreesEndNothing has the driver refuse every third allocation and every
// fifth free. Memory whose free failed is still there, which the peak shows.
func TestB45RefusedAllocationsAreCountedApartAndFailedFreesEndNothing(t *testing.T) {
	for name, script := range map[string]string{
		"allocations":           "cuMemAlloc_v2:every=3,result=2",
		"allocations and frees": "cuMemAlloc_v2:every=3,result=2;cuMemFree_v2:every=5,result=1",
		"another reason":        "cuMemAlloc_v2:every=3,result=999",
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, []string{"FAKEGPU_SCRIPT=" + script}, "./chain", "--iterations", "60")
			if o.status != 0 {
				t.Fatalf("status %d: %s", o.status, o.stderr)
			}
			truth := wantLedger(t, o, o.calls)
			if peak := o.sum(t, "gpu_peak_bytes"); peak != truth.Peak.Bytes {
				t.Errorf("peak %d, by the ledger %d", peak, truth.Peak.Bytes)
			}
			refused := 0
			for _, c := range o.calls {
				if c.Class != "" && c.Result != 0 {
					refused++
				}
			}
			if refused != 20 || name != "another reason" && truth.Failed.Objects != 20 {
				t.Errorf("the driver failed %d allocations, %d for want of memory; want 20", refused, truth.Failed.Objects)
			}
			wantReport(t, o)
		})
	}
}

// TestB05ChildrenOfForkAreProfiled has all allocations in children, and none in the process that was started.
func TestB05ChildrenOfForkAreProfiled(t *testing.T) {
	o := ok(t, nil, "./chain", "--fork", "8", "--iterations", "5")
	wantLedger(t, o, o.calls)
	pids := map[int]bool{}
	for _, c := range o.calls {
		if c.Class != "" {
			pids[c.PID] = true
		}
	}
	if len(pids) != 8 {
		t.Errorf("%d processes allocated, want 8", len(pids))
	}
	for pid := range pids {
		if got := fakegpu.Total(fakegpu.OfProcess(o.calls, pid)).Alloc.Objects; got != 5 {
			t.Errorf("process %d allocated %d times, want 5", pid, got)
		}
	}
}
