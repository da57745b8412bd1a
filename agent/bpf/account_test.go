package bpf_test

import (
	"testing"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/integration/fakegpu"
)

// TestAccountsAreTheDrivers compares with what the driver itself wrote down.
func TestAccountsAreTheDrivers(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		one  bool // thread, so that its order is the driver's order
	}{
		{"one thread", []string{"--iterations", "400", "--mix", "--keep", "20"}, true},
		{"eight threads", []string{"--threads", "8", "--iterations", "300", "--mix"}, false},
		{"eight threads that keep some", []string{"--threads", "8", "--iterations", "300", "--mix", "--keep", "10"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := load(t, bpf.Options{})
			truth := fakegpu.Total(b.chain(test.args...))
			got := b.sums()
			if n := b.statistic("lock_given_up"); n > 0 {
				t.Fatalf("%d changes could not be made in the kernel", n)
			}
			if got.AllocBytes != truth.Alloc.Bytes || got.AllocObjects != truth.Alloc.Objects ||
				got.InUseBytes != int64(truth.InUse.Bytes) || got.InUseObjects != int64(truth.InUse.Objects) {
				t.Errorf("%+v, the driver says %+v", got, truth)
			}
			// A free counts from its entry and an allocation at its return, so the driver may have seen more at a time.
			if peak := int64(truth.Peak.Bytes); got.PeakBytes > peak || test.one && got.PeakBytes != peak || got.PeakBytes < peak/2 {
				t.Errorf("peak %d, the driver says %d", got.PeakBytes, peak)
			}
		})
	}
}

func TestClassesAreCountedApart(t *testing.T) {
	b := load(t, bpf.Options{})
	truth := fakegpu.Sum(b.chain("--iterations", "200", "--mix", "--keep", "30"))
	now, err := b.kernel.Interval()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := b.kernel.Snapshot(now)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bpf.Counter{}
	for key, c := range snapshot.Counters {
		class := gpuapi.Class(key.Class).String()
		sum := got[class]
		plus(&sum, c)
		got[class] = sum
	}
	if len(truth) < 5 || len(got) != len(truth) {
		t.Errorf("%d classes, the driver has %d", len(got), len(truth))
	}
	for class, want := range truth {
		if c := got[class]; c.AllocBytes != want.Alloc.Bytes || c.InUseBytes != int64(want.InUse.Bytes) || c.InUseObjects != int64(want.InUse.Objects) {
			t.Errorf("%s: %+v, the driver says %+v", class, c, want)
		}
	}
}

func TestPeaksOfIntervals(t *testing.T) {
	b := load(t, bpf.Options{})
	c := b.caller()
	check := func(what string, interval uint64, want int64) {
		t.Helper()
		if got := b.sums(interval); got.PeakBytes != want {
			t.Errorf("%s: peak %d, want %d", what, got.PeakBytes, want)
		}
	}
	first, second := c.allocate(100), c.allocate(50)
	c.free(first)
	check("under way", 1, 150)
	ended := b.nextInterval()
	check("before anything changes", ended, 150)
	c.free(c.allocate(1000))
	check("while the next one runs", ended, 150)
	check("the next one, under way", ended+1, 1050)

	ended = b.nextInterval()
	check("the second", ended, 1050)
	ended = b.nextInterval()
	check("nothing changed in it", ended, 50)
	third := c.allocate(7)
	check("nothing changed in it, and something after it", ended, 50)
	check("after one without a change", ended+1, 57)

	ended = b.nextInterval()
	check("the fourth", ended, 57)
	c.free(second)
	c.free(third)
	check("only frees, so as it began", ended+1, 57)
	check("the fourth, after all frees", ended, 57)
	b.nextInterval()
	ended = b.nextInterval()
	check("an empty account without a change", ended, 0)
}

func TestCallsThatFail(t *testing.T) {
	b := load(t, bpf.Options{})
	c := b.caller("FAKEGPU_MEMORY=1MiB", "FAKEGPU_SCRIPT=cuMemFree_v2:nth=1,result=1;cuMemAlloc_v2:nth=3,result=999")
	p := c.allocate(1000)
	if result, _ := c.do("a", 2<<20); result != 2 {
		t.Fatalf("an allocation of all memory: result %d", result)
	}
	if result, _ := c.do("a", 500); result != 999 { // not for want of memory, so nothing was refused
		t.Fatalf("a broken allocation: result %d", result)
	}
	want := bpf.Counter{AllocBytes: 1000, AllocObjects: 1, FailedBytes: 2 << 20, FailedObjects: 1, InUseBytes: 1000, InUseObjects: 1, PeakBytes: 1000, PeakObjects: 1}
	check := func(what string) {
		t.Helper()
		if got := b.sums().Counter; got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("failed allocations")
	if result, _ := c.do("f", p); result != 1 {
		t.Fatalf("a broken free: result %d", result)
	}
	check("a failed free")
	if n := b.statistic("frees_failed"); n != 1 {
		t.Errorf("%d frees failed", n)
	}
	c.free(p)
	want.InUseBytes, want.InUseObjects = 0, 0
	check("the free that did not fail")
	if result, _ := c.do("f", p); result == 0 {
		t.Fatal("the driver freed twice")
	}
	check("a double free")
	if n := b.statistic("frees_unknown"); n != 1 {
		t.Errorf("%d frees of what nobody allocated", n)
	}
}

func TestPointersThatComeAgain(t *testing.T) {
	b := load(t, bpf.Options{})
	c := b.caller()
	check := func(what string, allocated uint64, inUse int64, objects int64) {
		t.Helper()
		if got := b.sums(); got.AllocBytes != allocated || got.InUseBytes != inUse || got.InUseObjects != objects {
			t.Errorf("%s: %+v, want %d bytes allocated and %d in use by %d", what, got, allocated, inUse, objects)
		}
	}
	p := c.allocate(1 << 20)
	if result, _ := c.do("t", p); result != 0 {
		t.Fatalf("free in another thread: result %d", result)
	}
	check("freed by another thread", 1<<20, 0, 0)
	if again := c.allocate(1 << 20); again != p {
		t.Fatalf("pointer %#x after the free of %#x: this test needs the same", again, p)
	}
	check("given again", 2<<20, 1<<20, 1)
	if result, _ := c.do("r"); result != 0 {
		t.Fatalf("reset: result %d", result)
	}
	if again := c.allocate(1 << 20); again != p {
		t.Fatalf("pointer %#x after a reset, %#x before it: this test needs the same", again, p)
	}
	check("given again without a free", 3<<20, 1<<20, 1)
	if n := b.statistic("live_replaced"); n != 1 {
		t.Errorf("%d replaced", n)
	}
	c.free(p)
	check("freed at last", 3<<20, 0, 0)
}
