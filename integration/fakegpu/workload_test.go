package fakegpu

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
)

// program is a running workload that says where it has got to.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	ledger string
	notes  string
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{t: t, cmd: exec.Command(name, args...), ledger: filepath.Join(dir, "ledger"), notes: filepath.Join(dir, "notes")}
	p.cmd.Env = append(append(os.Environ(), driver(t).Env(p.ledger)...), "FAKEGPU_TRACEBACKS="+p.notes)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// await reads the program's next line.
func (p *program) await(want string) {
	p.t.Helper()
	if !p.out.Scan() || p.out.Text() != want {
		p.t.Fatalf("%s said %q, want %q", p.cmd, p.out.Text(), want)
	}
}

func (p *program) goOn() {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for a good end and gives the calls.
func (p *program) end() []Call {
	p.t.Helper()
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("%s: %v", p.cmd, err)
	}
	return p.calls()
}

func (p *program) calls() []Call {
	p.t.Helper()
	calls, err := ReadLedger(p.ledger)
	if err != nil {
		p.t.Fatal(err)
	}
	return calls
}

func TestChainStack(t *testing.T) {
	p := start(t, driver(t).Chain, "--iterations", "7", "--mix")
	calls := p.end()
	for class, truth := range Sum(calls) {
		if truth.Alloc.Objects == 0 || truth.InUse != (Amount{}) {
			t.Errorf("%s: %+v", class, truth)
		}
	}
	stacks, err := ReadNativeStacks(p.notes)
	if err != nil || len(stacks) != 7 {
		t.Fatalf("%d stacks, %v", len(stacks), err)
	}
	d := driver(t)
	names := map[string]func(uint64) string{}
	for _, s := range stacks {
		var own []string
		for _, f := range s.Frames {
			if strings.HasPrefix(f.Object, "lib") && !strings.HasPrefix(f.Object, "libchain") {
				continue
			}
			if names[f.Object] == nil {
				names[f.Object] = symbolTable(t, filepath.Join(d.Dir, f.Object))
			}
			own = append(own, names[f.Object](f.Offset-1))
		}
		if want := append(ChainFunctions(), "_start"); !slices.Equal(own, want) {
			t.Errorf("stack %q, want %q", own, want)
		}
	}
}

// symbolTable gives the demangled function at an ELF address.
func symbolTable(t *testing.T, path string) func(uint64) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return func(address uint64) string {
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && address >= s.Value && address < s.Value+s.Size {
				return demangle.Filter(s.Name)
			}
		}
		return fmt.Sprintf("%#x", address)
	}
}

func TestChainThreadsAndProcesses(t *testing.T) {
	for _, test := range []struct {
		name             string
		args             []string
		processes, calls int
	}{
		{"threads", []string{"--threads", "4", "--iterations", "500"}, 1, 2000},
		{"fork", []string{"--fork", "8", "--iterations", "20", "--threads", "2"}, 8, 8 * 40},
		{"fork and exec", []string{"--fork", "8", "--exec", "--iterations", "20"}, 8, 8 * 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := start(t, driver(t).Chain, test.args...).end()
			processes := map[int]bool{}
			for _, c := range calls {
				processes[c.PID] = true
				if c.Result != 0 {
					t.Errorf("%+v failed", c)
				}
			}
			truth := Total(calls)
			if len(processes) != test.processes || truth.Alloc.Objects != uint64(test.calls) || truth.InUse != (Amount{}) {
				t.Errorf("%d processes, %+v", len(processes), truth)
			}
		})
	}
}

func TestChainWaits(t *testing.T) {
	p := start(t, driver(t).Chain, "--wait-load", "--wait", "--hold", "--iterations", "6", "--keep", "2", "--size", "4096")
	p.await("load")
	mapped := func() bool {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), "libcuda.so.1")
	}
	if mapped() {
		t.Error("the driver is loaded before it should be")
	}
	p.goOn()
	p.await("start")
	if !mapped() || len(p.calls()) != 0 {
		t.Error("the driver is not loaded, or was called already")
	}
	p.goOn()
	p.await("hold")
	if got := Total(p.calls()).InUse; got.Objects != 2 || got.Bytes != 2*4096+4*4096+5*4096 {
		t.Errorf("in use: %+v", got)
	}
	p.goOn()
	p.end()
}

// pythons are the CPythons on this machine from 3.8 on.
func pythons(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/3.*/bin/python3"))
	if err != nil {
		t.Fatal(err)
	}
	if system, err := exec.LookPath("python3"); err == nil {
		found = append(found, system)
	}
	var able []string
	for _, python := range found {
		if exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run() == nil {
			able = append(able, python)
		}
	}
	if len(able) == 0 {
		t.Fatal("no CPython from 3.8 on: install it (Debian and Ubuntu: apt-get install python3)")
	}
	return able
}

func TestTrainTracebacks(t *testing.T) {
	script := driver(t).Train
	source, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			p := start(t, python, script, "--steps", "2", "--version", "v2")
			calls := p.end()
			notes, err := ReadTracebacks(p.notes)
			if err != nil {
				t.Fatal(err)
			}
			type note struct {
				Function string
				Size     uint64
			}
			asked, noted := map[int][]note{}, map[int][]note{}
			for _, c := range calls {
				if c.Class != "" {
					asked[c.TID] = append(asked[c.TID], note{c.Function, c.Size})
				}
			}
			names := map[string]bool{}
			for _, n := range notes {
				noted[n.TID] = append(noted[n.TID], note{n.Function, n.Size})
				first := n.Frames[0]
				if text := lines[first.Line-1]; first.File != script || !strings.Contains(text, "driver.lib."+n.Function) {
					t.Errorf("%+v is at %q", first, text)
				}
				for _, f := range n.Frames {
					bare := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
					names[bare] = true
					// The line of a call that spans several is where it begins.
					if bare == "__call__" && lines[f.Line-1] != "        return x + [self.forward(" {
						t.Errorf("%+v is at %q", f, lines[f.Line-1])
					}
				}
			}
			if len(asked) != len(noted) || len(notes) < 90 {
				t.Errorf("%d threads, %d with tracebacks, %d tracebacks", len(asked), len(noted), len(notes))
			}
			for tid := range asked {
				if !slices.Equal(asked[tid], noted[tid]) {
					t.Errorf("thread %d: ledger %v, tracebacks %v", tid, asked[tid], noted[tid])
				}
			}
			for _, name := range []string{
				"<module>", "<lambda>", "<genexpr>", "wrapper", "batches", "from_c", "fused_kernel", "größe_anpassen", "unpack", "workspace",
				"tree", "remember", "_bootstrap", "__enter__", "forward",
			} {
				if !names[name] {
					t.Errorf("no traceback has %s", name)
				}
			}
		})
	}
}

func TestTrainVersionsDiffer(t *testing.T) {
	held := map[string]uint64{}
	for _, version := range []string{"v1", "v2"} {
		p := start(t, pythons(t)[0], driver(t).Train, "--steps", "3", "--hold", "--version", version)
		p.await("hold")
		held[version] = Total(p.calls()).InUse.Bytes
		p.goOn()
		if left := Total(p.end()).InUse; left != (Amount{}) {
			t.Errorf("%s leaves %+v", version, left)
		}
	}
	if grew := held["v2"] - held["v1"]; grew != (12+13+14)*mib {
		t.Errorf("v2 holds %d bytes more than v1's %d", grew, held["v1"])
	}
}

func TestTrainSurvivesOutOfMemory(t *testing.T) {
	c := exec.Command(pythons(t)[0], driver(t).Train, "--steps", "2")
	ledger := filepath.Join(t.TempDir(), "ledger")
	c.Env = append(append(os.Environ(), driver(t).Env(ledger)...), "FAKEGPU_MEMORY=100MiB")
	out, err := c.CombinedOutput()
	if err != nil || strings.Count(string(out), "the device is full") != 2 {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestInference(t *testing.T) {
	held := map[string]uint64{}
	for _, version := range []string{"v1", "v2"} {
		p := start(t, driver(t).Inference, "--version", version, "--interval", "1")
		p.await("ready")
		held[version] = Total(OfProcess(p.calls(), p.cmd.Process.Pid), "device").InUse.Bytes
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if left := Total(p.end()).InUse; left != (Amount{}) {
			t.Errorf("%s leaves %+v", version, left)
		}
	}
	// Requests may be under way already, so the cache of version 2 is the least that it holds more.
	if grew := held["v2"] - held["v1"]; grew < 4000*mib {
		t.Errorf("v2 holds %d bytes more than v1's %d", grew, held["v1"])
	}
}

func TestBench(t *testing.T) {
	type result struct {
		Depth, Python int
		Calls         int
		Batch         bool
		NS            float64
	}
	run := func(name string, args ...string) result {
		t.Helper()
		c := exec.Command(name, append(args, "--repeats", "1", "--calls", "1000")...)
		c.Env = append(os.Environ(), driver(t).Env("")...)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		var r result
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%s: %q: %v", c, out, err)
		}
		return r
	}
	for _, depth := range []int{4, 34, 64} {
		r := run(driver(t).Bench, "--depth", fmt.Sprint(depth))
		if r.Depth != depth || r.Python != 0 || r.Calls != 1000 || r.NS <= 0 || r.Batch {
			t.Errorf("depth %d: %+v", depth, r)
		}
	}
	if r := run(driver(t).Bench, "--batch"); !r.Batch || r.Depth != 34 {
		t.Errorf("batch: %+v", r)
	}
	if r := run(pythons(t)[0], driver(t).BenchPython, "--depth", "70"); r.Depth != 70 || r.Python != 10 {
		t.Errorf("Python: %+v", r)
	}
}
