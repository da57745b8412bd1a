package attach_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vramprof/vramprof/agent/attach"
)

// gcc builds a file of testdata.
func gcc(t testing.TB, source, output string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), output)
	args := append([]string{"-O2", "-o", path, filepath.Join("testdata", source)}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v (`make setup-test` installs it): %v\n%s", args, err, out)
	}
	return path
}

func library(t testing.TB, flags ...string) string {
	t.Helper()
	return gcc(t, "shapes.c", "libshapes.so", append([]string{"-shared", "-fPIC", "-Wl,-Bsymbolic"}, flags...)...)
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func plan(t testing.TB, f *os.File, symbols ...string) attach.Plan {
	t.Helper()
	p, err := attach.NewPlan(f, symbols)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Refused) > 0 {
		t.Fatalf("refused: %v", p.Refused)
	}
	return p
}

// caller is a process that has the library loaded and calls its functions when told.
type caller struct {
	t      testing.TB
	pid    int
	input  io.WriteCloser
	output *bufio.Reader
}

func startCaller(t testing.TB, library string) *caller {
	t.Helper()
	cmd := exec.Command(gcc(t, "caller.c", "caller"), library)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("caller: %v", err)
		}
	})
	c := &caller{t, cmd.Process.Pid, input, bufio.NewReader(output)}
	c.call("push_first", 1) // it has loaded the library once this returns
	return c
}

// call gives what the function returned and the nanoseconds per call.
func (c *caller) call(function string, count int) (int, float64) {
	c.t.Helper()
	var (
		result int
		ns     float64
	)
	fmt.Fprintf(c.input, "%s %d\n", function, count)
	if _, err := fmt.Fscan(c.output, &result, &ns); err != nil {
		c.t.Fatalf("call %s: %v", function, err)
	}
	return result, ns
}

// mapped opens the library through the process that maps it.
func (c *caller) mapped(name string) *os.File {
	c.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); strings.Contains(line, name) && fields[1] == "r-xp" {
			return open(c.t, fmt.Sprintf("/proc/%d/map_files/%s", c.pid, fields[0]))
		}
	}
	c.t.Fatalf("process %d does not map %s:\n%s", c.pid, name, maps)
	return nil
}

// seen is what the programs of a counter saw at one cookie.
type seen struct {
	Hits     uint64 // entries
	Wrong    uint64 // entries whose six arguments were not 1 to 6
	Returns  uint64
	Shifted  uint64 // returns whose stack pointer was not 8 above that of the entry
	SP       uint64
	Returned uint64 // the last returned value
}

// counter is a pair of programs that count what they see by cookie.
type counter struct {
	entry, ret *ebpf.Program
	seen       *ebpf.Map
}

func newCounter(t testing.TB, m attach.Mechanism) *counter {
	t.Helper()
	const cookies = 64
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 48, MaxEntries: cookies})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	load := func(name string, body ...asm.Instruction) *ebpf.Program {
		// r6 = registers, r0 = the cookie's value
		code := asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.FnGetAttachCookie.Call(),
			asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
		}
		code = append(code, body...)
		code = append(code, asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.Kprobe, AttachType: m.AttachType(), Instructions: code, License: "Apache-2.0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	increment := func(offset int16) []asm.Instruction {
		return []asm.Instruction{asm.Mov.Imm(asm.R1, 1), asm.Mov.Reg(asm.R2, asm.R0), asm.Add.Imm(asm.R2, int32(offset)), asm.AddAtomic.Mem(asm.R2, asm.R1, asm.DWord, 0)}
	}
	// Offsets in struct pt_regs of x86-64: r9 64, r8 72, rax 80, rcx 88, rdx 96, rsi 104, rdi 112, rsp 152.
	entry := append(increment(0), asm.LoadMem(asm.R1, asm.R6, 152, asm.DWord), asm.StoreMem(asm.R0, 32, asm.R1, asm.DWord))
	for i, register := range []int16{112, 104, 96, 88, 72, 64} {
		entry = append(entry, asm.LoadMem(asm.R1, asm.R6, register, asm.DWord), asm.JNE.Imm(asm.R1, int32(i+1), "wrong"))
	}
	entry = append(entry, asm.Ja.Label("out"))
	wrong := increment(8)
	wrong[0] = wrong[0].WithSymbol("wrong")
	entry = append(entry, wrong...)

	ret := append(increment(16),
		asm.LoadMem(asm.R1, asm.R6, 80, asm.DWord), asm.StoreMem(asm.R0, 40, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 152, asm.DWord), asm.LoadMem(asm.R2, asm.R0, 32, asm.DWord),
		asm.Add.Imm(asm.R2, 8), asm.JEq.Reg(asm.R1, asm.R2, "out"))
	ret = append(ret, increment(24)...)
	return &counter{load("entry", entry...), load("return", ret...), counts}
}

func (c *counter) at(t testing.TB, cookie int) seen {
	t.Helper()
	var s seen
	if err := c.seen.Lookup(uint32(cookie), &s); err != nil {
		t.Fatal(err)
	}
	s.SP = 0
	return s
}

// probes gives the sites consecutive cookies from 1.
func (c *counter) probes(sites []attach.Site) []attach.Probe {
	var all []attach.Probe
	for i, s := range sites {
		all = append(all, attach.Probe{Site: s, Cookie: uint64(i + 1), Entry: c.entry, Return: c.ret})
	}
	return all
}

func attachAll(t testing.TB, m attach.Mechanism, f *os.File, probes []attach.Probe) *attach.Attachment {
	t.Helper()
	a, err := attach.Attach(m, f, probes)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Failed()) > 0 {
		t.Fatalf("failed: %v", a.Failed())
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}
