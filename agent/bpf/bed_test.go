package bpf_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/agent/attach"
	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/integration/fakegpu"
	"github.com/vramprof/vramprof/internal/procfs"
)

// built is the fake driver and testdata/calls.c on it.
var built struct {
	driver fakegpu.Driver
	calls  string
}

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "vramprof-bpf-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if built.driver, err = fakegpu.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	built.calls = filepath.Join(dir, "calls")
	compiler := exec.Command("gcc", "-O2", "-Wall", "-g0", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread",
		"-Wl,--build-id=sha1", "-o", built.calls, "testdata/calls.c", built.driver.Library)
	if out, err := compiler.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// bed is the kernel half on the fake driver, for the processes that this one starts.
type bed struct {
	*testing.T
	kernel *bpf.Kernel
}

func load(t *testing.T, o bpf.Options) *bed {
	t.Helper()
	mechanism, err := attach.Detect()
	if err != nil {
		t.Fatal(err)
	}
	functions := gpuapi.CUDA()
	row := map[string]int{}
	var names []string
	for i, f := range functions {
		row[f.Symbol] = i
		names = append(names, f.Symbol)
		o.Calls = append(o.Calls, bpf.Call{
			Role: uint8(f.Role), Class: uint8(f.Class), Family: uint8(f.Family), API: uint8(f.API), SizeKind: uint8(f.Size.Kind), SizeArg: f.Size.Arg,
			Size2: f.Size.Arg2, PointerKind: uint8(f.Pointer.Kind), PointerArg: f.Pointer.Arg, Success: f.Success, OutOfMemory: f.OutOfMemory,
		})
	}
	o.Multi, o.OnlyBelow = mechanism == attach.UprobeMulti, uint32(os.Getpid())
	k, err := bpf.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	library, err := os.Open(built.driver.Library)
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	plan, err := attach.NewPlan(library, names)
	if err != nil {
		t.Fatal(err)
	}
	var probes []attach.Probe
	for _, site := range plan.Sites {
		p := attach.Probe{Site: site, Cookie: uint64(row[site.Symbols[0]])}
		p.Entry, p.Return = k.Allocate()
		if functions[p.Cookie].Role == gpuapi.RoleFree {
			p.Entry, p.Return = k.Free()
		}
		probes = append(probes, p)
	}
	attached, err := attach.Attach(mechanism, library, probes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := attached.Close(); err != nil {
			t.Error(err)
		}
	})
	if f := attached.Failed(); len(f) > 0 {
		t.Fatal(f)
	}
	return &bed{t, k}
}

// chain runs the chain workload to its end and gives what the driver says of it.
func (b *bed) chain(args ...string) []fakegpu.Call {
	b.Helper()
	ledger := filepath.Join(b.TempDir(), "ledger")
	c := exec.Command(built.driver.Chain, args...)
	c.Env = append(os.Environ(), built.driver.Env(ledger)...)
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	calls, err := fakegpu.ReadLedger(ledger)
	if err != nil {
		b.Fatal(err)
	}
	return calls
}

// caller is a running testdata/calls.c.
type caller struct {
	*testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (b *bed) caller(env ...string) *caller {
	b.Helper()
	c := &caller{T: b.T, cmd: exec.Command(built.calls)}
	c.cmd.Env = append(append(os.Environ(), built.driver.Env("")...), env...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	return c
}

// do gives the result and the pointer of a command, after it has ended.
func (c *caller) do(command string, arguments ...any) (result int, pointer uint64) {
	c.Helper()
	if _, err := fmt.Fprintln(c.in, append([]any{command}, arguments...)...); err != nil {
		c.Fatal(err)
	}
	c.out.Scan()
	if _, err := fmt.Sscan(c.out.Text(), &result, &pointer); err != nil {
		c.Fatalf("%s %v: answer %q: %v", command, arguments, c.out.Text(), err)
	}
	return result, pointer
}

// allocate succeeds or fails the test.
func (c *caller) allocate(size uint64) (pointer uint64) {
	c.Helper()
	result, pointer := c.do("a", size)
	if result != 0 || pointer == 0 {
		c.Fatalf("allocate %d: result %d, pointer %#x", size, result, pointer)
	}
	return pointer
}

func (c *caller) free(pointer uint64) {
	c.Helper()
	if result, _ := c.do("f", pointer); result != 0 {
		c.Fatalf("free %#x: result %d", pointer, result)
	}
}

// sums are a snapshot's, over counters and what found no room among them.
type sums struct {
	bpf.Counter
	accounts, counters int
	account            struct{ InUse, Peak int64 }
	lost               bpf.Counter
}

// sums asks for a snapshot. With no number it is of the interval under way.
func (b *bed) sums(intervals ...uint64) sums {
	b.Helper()
	if len(intervals) == 0 {
		now, err := b.kernel.Interval()
		if err != nil {
			b.Fatal(err)
		}
		intervals = append(intervals, now)
	}
	snapshot, err := b.kernel.Snapshot(intervals[0])
	if err != nil {
		b.Fatal(err)
	}
	s := sums{accounts: len(snapshot.Accounts), counters: len(snapshot.Counters)}
	for _, c := range snapshot.Counters {
		plus(&s.Counter, c)
	}
	for _, a := range snapshot.Accounts {
		s.account.InUse += a.InUseBytes
		s.account.Peak += a.PeakBytes
		for _, c := range a.Lost {
			plus(&s.Counter, c)
			plus(&s.lost, c)
		}
	}
	if s.account.InUse != s.InUseBytes || s.account.Peak != s.PeakBytes {
		b.Errorf("accounts hold %d bytes, at their peaks %d; their stacks %d and %d", s.account.InUse, s.account.Peak, s.InUseBytes, s.PeakBytes)
	}
	return s
}

func plus(to *bpf.Counter, c bpf.Counter) {
	to.AllocBytes += c.AllocBytes
	to.AllocObjects += c.AllocObjects
	to.FailedBytes += c.FailedBytes
	to.FailedObjects += c.FailedObjects
	to.InUseBytes += c.InUseBytes
	to.InUseObjects += c.InUseObjects
	to.PeakBytes += c.PeakBytes
	to.PeakObjects += c.PeakObjects
}

// nextInterval ends an interval and gives its number.
func (b *bed) nextInterval() uint64 {
	b.Helper()
	ended, err := b.kernel.NextInterval()
	if err != nil {
		b.Fatal(err)
	}
	return ended
}

func (b *bed) statistic(name string) uint64 {
	b.Helper()
	all, err := b.kernel.Statistics()
	if err != nil {
		b.Fatal(err)
	}
	n, ok := all[name]
	if !ok {
		b.Fatalf("no statistic %s", name)
	}
	return n
}

// unwound tells the kernel half how to unwind a process.
func (b *bed) unwound(pid uint32) {
	b.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	data, err := os.ReadFile(proc + "stat")
	if err != nil {
		b.Fatal(err)
	}
	stat, err := procfs.ParseStat(data)
	if err != nil {
		b.Fatal(err)
	}
	image := bpf.Image{StartStack: stat.StartStack}
	maps, err := os.Open(proc + "maps")
	if err != nil {
		b.Fatal(err)
	}
	defer maps.Close()
	store := objects.NewStore()
	err = procfs.Maps(maps, func(m procfs.Mapping) bool {
		if !m.Executable || m.Inode == 0 {
			return true
		}
		o, err := store.Get(objects.Key{Dev: m.Dev, Inode: m.Inode}, pid, m.Start, m.End, m.Path)
		if err != nil {
			b.Fatal(err)
		}
		table, err := o.Rows()
		if err != nil {
			b.Fatal(err)
		}
		rows, err := b.kernel.LoadRows(table.Rows)
		if err != nil {
			b.Fatal(err)
		}
		bias, ok := o.LoadBias(m.Start, m.Offset)
		if !ok {
			b.Fatalf("%s: no load bias at offset %#x", m.Path, m.Offset)
		}
		image.Mappings = append(image.Mappings, bpf.Mapping{Start: m.Start, End: m.End, Base: bias + table.Base, Rows: rows})
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := b.kernel.SetImage(pid, image); err != nil {
		b.Fatal(err)
	}
}
