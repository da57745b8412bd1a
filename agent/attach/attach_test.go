package attach_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/agent/attach"
	"golang.org/x/sys/unix"
)

var shapes = []string{
	"stub", "endbr_jump", "endbr_push", "push_first", "push_r12", "thunk", "nop5_only", "nop5_push", "load_scratch",
	"lea_argument", "sub_stack", "store_first", "callee_saved", "loop_head",
}

// mechanisms are those of the kernel: both from Linux 6.6 on.
func mechanisms(t testing.TB) []attach.Mechanism {
	t.Helper()
	m, err := attach.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if m == attach.UprobeMulti {
		return []attach.Mechanism{attach.UprobeMulti, attach.PerfEvent}
	}
	return []attach.Mechanism{attach.PerfEvent}
}

// TestProbesSeeTheCall attaches to every shape and lets a process call it: one hit and one return per call, arguments and
// stack pointer as the caller left them, the function's result unharmed.
func TestProbesSeeTheCall(t *testing.T) {
	for _, m := range mechanisms(t) {
		t.Run(m.String(), func(t *testing.T) {
			for _, tt := range []struct {
				name  string
				flags []string
			}{
				{"plain", nil},
				{"text base", []string{"-Wl,-Ttext-segment=0x34fd200000"}},        // B11
				{"address and offset differ", []string{"-Wl,-Ttext=0x7654000"}},   // B11
				{"one segment for all", []string{"-Wl,-z,noseparate-code", "-s"}}, // B11
			} {
				t.Run(tt.name, func(t *testing.T) {
					path := library(t, tt.flags...)
					c := startCaller(t, path)
					f := c.mapped("libshapes.so")
					p := plan(t, f, shapes...)
					count := newCounter(t, m)
					attachAll(t, m, f, count.probes(p.Sites))
					for i, s := range p.Sites {
						const calls = 5
						before := count.at(t, i+1)
						if result, _ := c.call(s.Symbols[0], calls); result != 21 {
							t.Errorf("%s returned %d, want 21", s.Symbols[0], result)
						}
						want := seen{Hits: before.Hits + calls, Returns: before.Returns + calls, Returned: 21}
						if got := count.at(t, i+1); got != want {
							t.Errorf("%s probed at %+d: %+v, want %+v", s.Symbols[0], s.ProbeOffset, got, want)
						}
					}
				})
			}
		})
	}
}

// TestReplacedFile is B03: the file under a running process is replaced; its mapping still names the old one.
func TestReplacedFile(t *testing.T) {
	path := library(t)
	c := startCaller(t, path)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replacement := path + ".new"
	if err := os.WriteFile(replacement, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replacement, path); err != nil {
		t.Fatal(err)
	}
	for _, m := range mechanisms(t) {
		for _, tt := range []struct {
			name string
			file *os.File
			want uint64
		}{
			{"mapped file", c.mapped("libshapes.so"), 5},
			{"new file at the path", open(t, path), 0},
		} {
			t.Run(fmt.Sprint(m, "/", tt.name), func(t *testing.T) {
				count := newCounter(t, m)
				attachAll(t, m, tt.file, count.probes(plan(t, tt.file, "stub").Sites))
				c.call("stub", 5)
				if got := count.at(t, 1).Hits; got != tt.want {
					t.Errorf("%d hits, want %d", got, tt.want)
				}
			})
		}
	}
}

// TestSharedLayer is B02: two containers of one image map one file of a layer, at devices of their own.
func TestSharedLayer(t *testing.T) {
	path := library(t)
	views := []string{overlay(t, filepath.Dir(path)), overlay(t, filepath.Dir(path))}
	m := mechanisms(t)[0]
	var (
		files   []*os.File
		callers []*caller
		keys    = map[attach.Key]bool{}
		devices = map[uint64]bool{}
	)
	for _, v := range views {
		callers = append(callers, startCaller(t, filepath.Join(v, "libshapes.so")))
		files = append(files, callers[len(callers)-1].mapped("libshapes.so"), open(t, filepath.Join(v, "libshapes.so")))
	}
	for _, f := range files {
		key, err := attach.FileKey(f)
		if err != nil {
			t.Fatal(err)
		}
		keys[key] = true
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		devices[stat.Dev] = true
	}
	if len(keys) != 1 {
		t.Errorf("keys %v, want one: probing by them counts calls more than once", keys)
	}
	if len(devices) < 2 {
		t.Errorf("the views have one device %v: this test tests nothing", devices)
	}
	count := newCounter(t, m)
	attachAll(t, m, files[0], count.probes(plan(t, files[0], "stub").Sites))
	for _, c := range callers {
		c.call("stub", 5)
	}
	if got := count.at(t, 1).Hits; got != 10 {
		t.Errorf("%d hits through one view, want 10 of both", got)
	}

	copied := filepath.Join(views[0], "copy.so")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, content, 0o755); err != nil {
		t.Fatal(err)
	}
	key, err := attach.FileKey(open(t, copied))
	if err != nil {
		t.Fatal(err)
	}
	if keys[key] {
		t.Error("a copy with the same content has the key of the first, and would have no probes")
	}
}

// overlay mounts a view of a layer, as a container has.
func overlay(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	// The layers are on a tmpfs of their own: an overlay's upper directory cannot be on another overlay.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal("mount tmpfs (needs root):", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"upper", "work", "view"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	view := filepath.Join(dir, "view")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, dir, dir)
	if err := unix.Mount("overlay", view, "overlay", 0, options); err != nil {
		t.Fatalf("mount overlay %s: %v", options, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(view, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return view
}

// TestOneRefusedProbe has the kernel refuse one site of three, which lies beyond the file's end.
func TestOneRefusedProbe(t *testing.T) {
	path := library(t)
	for _, m := range mechanisms(t) {
		t.Run(m.String(), func(t *testing.T) {
			c := startCaller(t, path)
			f := c.mapped("libshapes.so")
			p := plan(t, f, "stub", "push_first")
			count := newCounter(t, m)
			probes := count.probes(p.Sites)
			bad := attach.Site{Symbols: []string{"beyond"}, Address: 1, FileOffset: 1 << 40}
			a, err := attach.Attach(m, f, append(probes, attach.Probe{Site: bad, Cookie: 9, Entry: count.entry, Return: count.ret}))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if failed := a.Failed(); len(failed) != 1 || failed[0].Probe.Symbols[0] != "beyond" {
				t.Errorf("failed %v, want the bad site once", failed)
			}
			c.call("stub", 5)
			c.call("push_first", 5)
			for cookie := 1; cookie <= 2; cookie++ {
				if got := count.at(t, cookie); got.Hits != 5 || got.Returns != 5 {
					t.Errorf("cookie %d: %+v, want 5 hits and returns", cookie, got)
				}
			}
		})
	}
}

func TestCloseDetaches(t *testing.T) {
	for _, m := range mechanisms(t) {
		t.Run(m.String(), func(t *testing.T) {
			c := startCaller(t, library(t))
			f := c.mapped("libshapes.so")
			count := newCounter(t, m)
			a, err := attach.Attach(m, f, count.probes(plan(t, f, "stub").Sites))
			if err != nil {
				t.Fatal(err)
			}
			c.call("stub", 5)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			c.call("stub", 5)
			if got := count.at(t, 1); got.Hits != 5 || got.Returns != 5 {
				t.Errorf("%+v, want 5 hits and returns: those before Close", got)
			}
		})
	}
}
