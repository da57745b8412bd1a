package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

// driverCopy gives a folder with a copy of the driver and the workloads, which nothing has seen before.
func driverCopy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(built.driver.Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replaceLibrary puts another file in the driver's place, as a package manager does: written beside it and renamed.
func replaceLibrary(t *testing.T, dir string) {
	t.Helper()
	library := filepath.Join(dir, "libcuda.so.1")
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library+".new", append(content, "a newer build"...), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(library+".new", library); err != nil {
		t.Fatal(err)
	}
}

// TestB02OneLibraryBehindTwoMountsCountsOnce runs the same file of one image through two containers' overlays, which
// have device numbers of their own.
func TestB02OneLibraryBehindTwoMountsCountsOnce(t *testing.T) {
	dir := t.TempDir()
	mount := func(source, target, kind, data string) {
		t.Helper()
		if err := os.MkdirAll(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, target, kind, 0, data); err != nil {
			t.Fatalf("mount %s on %s: %v", kind, target, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, 0); err != nil {
				t.Error(err)
			}
		})
	}
	scratch := filepath.Join(dir, "scratch")
	mount("tmpfs", scratch, "tmpfs", "") // an overlay on an overlay cannot have its upper layer there
	image := driverCopy(t)
	var roots []string
	for _, name := range []string{"a", "b"} {
		root, upper, work := filepath.Join(dir, name), filepath.Join(scratch, name), filepath.Join(scratch, name+".work")
		for _, d := range []string{upper, work} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mount("overlay", root, "overlay", fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", image, upper, work))
		roots = append(roots, root)
	}
	o := ok(t, []string{"LD_LIBRARY_PATH=" + image}, "sh", "-c", `for d in "$@"; do LD_LIBRARY_PATH=$d $d/chain & done; wait; for d in "$@"; do LD_LIBRARY_PATH=$d $d/chain; done`, "sh", roots[0], roots[1], image)
	if truth := wantLedger(t, o, o.calls); truth.Alloc.Objects != 60 {
		t.Errorf("%d allocations, want 60", truth.Alloc.Objects)
	}
}

// TestB03LibraryReplacedUnderARunningProcess has a process use the file that is deleted, and then a second one the new.
func TestB03LibraryReplacedUnderARunningProcess(t *testing.T) {
	dir := driverCopy(t)
	l := start(t, newSession(t, []string{"LD_LIBRARY_PATH=" + dir}, "sh", "-c", `"$0/chain" --wait && exec "$0/chain" `+slowly, dir))
	l.await("start")
	replaceLibrary(t, dir)
	l.goOn()
	o := l.end()
	first := o.calls[0].PID
	second := slices.DeleteFunc(slices.Clone(o.calls), func(c fakegpu.Call) bool { return c.PID == first })
	old := fakegpu.Total(fakegpu.OfProcess(o.calls, first)).Alloc
	if old.Objects != 10 {
		t.Errorf("the first process allocated %+v", old)
	}
	wantAllButFirst(t, o, old, second)
}

// TestB04FirstAllocationAfterALateLoad has many processes load a driver that is known, each for a single allocation at
// once. None is missed.
func TestB04FirstAllocationAfterALateLoad(t *testing.T) {
	l := start(t, newSession(t, nil, "sh", "-c", `./chain --wait-load --iterations 1; for i in $(seq 30); do ./chain --iterations 1; done`))
	l.await("load")
	l.goOn()
	o := l.end()
	if truth := wantLedger(t, o, o.calls); truth.Alloc.Objects != 31 {
		t.Errorf("%d allocations, want 31", truth.Alloc.Objects)
	}
}

// TestB04DriverThatNothingToldOf has a process load a driver from a folder that the profiler cannot know. What it misses
// are calls right after the load, and none later.
func TestB04DriverThatNothingToldOf(t *testing.T) {
	dir := driverCopy(t)
	o := ok(t, []string{"LD_LIBRARY_PATH="}, "sh", "-c", `LD_LIBRARY_PATH=$0 exec "$0/chain" `+slowly, dir)
	wantAllButFirst(t, o, fakegpu.Amount{}, o.calls)
}

// slowly are options of the chain workload for 100 allocations in at least a second.
const slowly = "--iterations 100 --interval 10000"

// wantAllButFirst checks that the profile has, besides some memory, what was allocated from some call on, which is not
// late: a file that was never seen before is attached within a part of a second of its load.
func wantAllButFirst(t *testing.T, o outcome, besides fakegpu.Amount, calls []fakegpu.Call) {
	t.Helper()
	var sizes []uint64
	for _, c := range calls {
		if c.Class != "" {
			sizes = append(sizes, c.Size)
		}
	}
	objects, bytes := o.sum(t, "gpu_alloc_objects")-besides.Objects, o.sum(t, "gpu_alloc_bytes")-besides.Bytes
	if len(sizes) != 100 || objects > 100 || objects < 50 {
		t.Fatalf("%d of %d allocations are seen", objects, len(sizes))
	}
	t.Logf("%d of %d allocations are seen", objects, len(sizes))
	var want uint64
	for _, size := range sizes[100-objects:] {
		want += size
	}
	if bytes != want {
		t.Errorf("the profile has %d bytes of the last %d allocations, the ledger %d", bytes, objects, want)
	}
}
