package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
	o := ok(t, nil, "sh", "-c", `for d in "$@"; do LD_LIBRARY_PATH=$d $d/chain & done; wait; for d in "$@"; do LD_LIBRARY_PATH=$d $d/chain; done`, "sh", roots[0], roots[1], image)
	if truth := wantLedger(t, o, o.calls); truth.Alloc.Objects != 60 {
		t.Errorf("%d allocations, want 60", truth.Alloc.Objects)
	}
}

// TestB03LibraryReplacedUnderARunningProcess replaces the driver's file before the process loads it, once it has, and
// for a second process.
func TestB03LibraryReplacedUnderARunningProcess(t *testing.T) {
	for _, option := range []string{"--wait-load", "--wait"} {
		t.Run(option, func(t *testing.T) {
			dir := driverCopy(t)
			s := newSession(t, []string{"LD_LIBRARY_PATH=" + dir}, "sh", "-c", `"$0/chain" `+option+` && "$0/chain" --iterations 4`, dir)
			l := start(t, s)
			l.await(map[string]string{"--wait-load": "load", "--wait": "start"}[option])
			replaceLibrary(t, dir)
			l.goOn()
			o := l.end()
			if truth := wantLedger(t, o, o.calls); truth.Alloc.Objects != 14 {
				t.Errorf("%d allocations, want 14", truth.Alloc.Objects)
			}
			wantWhole(t, o)
		})
	}
}

// TestB04FirstAllocationAfterALateLoad has a process load a driver from a folder that nothing told the profiler of, and
// allocate at once, a single time.
func TestB04FirstAllocationAfterALateLoad(t *testing.T) {
	for _, option := range []string{"--wait-load", "none"} {
		t.Run(option, func(t *testing.T) {
			dir := driverCopy(t)
			args := []string{"env", "LD_LIBRARY_PATH=" + dir, filepath.Join(dir, "chain"), "--iterations", "1"}
			if option == "none" {
				o := ok(t, []string{"LD_LIBRARY_PATH="}, args...)
				wantLedger(t, o, o.calls)
				return
			}
			l := start(t, newSession(t, []string{"LD_LIBRARY_PATH="}, append(args, option)...))
			l.await("load")
			l.goOn()
			o := l.end()
			wantLedger(t, o, o.calls)
			wantWhole(t, o)
		})
	}
}
