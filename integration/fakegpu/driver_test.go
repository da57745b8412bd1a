package fakegpu

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/internal/ehframe"
)

// built is the driver, built once for all tests of this package.
var built = sync.OnceValues(func() (Driver, error) {
	return Build(context.Background(), filepath.Join(os.TempDir(), "vramprof-fakegpu-test"))
})

func driver(t *testing.T) Driver {
	t.Helper()
	d, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func exports(t *testing.T, f *elf.File) map[string]elf.Symbol {
	t.Helper()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]elf.Symbol{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			found[s.Name] = s
		}
	}
	return found
}

// TestStubs checks every exported function against the bytes of libcuda 550.163.01's.
func TestStubs(t *testing.T) {
	f, err := elf.Open(driver(t).Library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	var guard uint64
	all := exports(t, f)
	for name, s := range all {
		if s.Size != 30 || s.Value%32 != 0 || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			t.Errorf("%s: size %d at %#x", name, s.Size, s.Value)
			continue
		}
		stub := code[s.Value-text.Addr:][:32]
		want := bytes.Clone(stub)
		copy(want, []byte{0x81, 0x3d})                              // cmpl imm32, guard(%rip)
		copy(want[6:], []byte{0x00, 0xba, 0x1c, 0x32, 0x74, 0x0c})  // 0x321cba00; je +12
		copy(want[12:], []byte{0xff, 0x25})                         // jmp *slot(%rip)
		copy(want[18:], []byte{0x66, 0x0f, 0x1f, 0x44, 0, 0})       // nopw
		copy(want[24:], []byte{0xb8, 4, 0, 0, 0, 0xc3, 0x66, 0x90}) // mov $4, %eax; ret; xchg %ax, %ax
		at := s.Value + 10 + uint64(int64(int32(binary.LittleEndian.Uint32(stub[2:]))))
		if guard == 0 {
			guard = at
		}
		if !bytes.Equal(stub, want) || at != guard {
			t.Errorf("%s: % x, guard at %#x; want % x, %#x", name, stub, at, want, guard)
		}
	}
	frames := f.Section(".eh_frame")
	section, err := frames.Data()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := ehframe.Parse(section, frames.Addr, nil, 0)
	if err != nil {
		t.Fatalf("unwind rows: %v", err)
	}
	for name, s := range all {
		if row, ok := rows.Find(s.Value + 10); !ok || row.Kind() != ehframe.SP || row.CFA&^7 != 8 {
			t.Errorf("%s: no row that says the CFA is rsp + 8: %+v", name, row)
		}
	}
	if len(all) < 100 {
		t.Errorf("%d exports", len(all))
	}
	if f.Section(".note.gnu.build-id") == nil || f.Section(".symtab") != nil {
		t.Error("want a build ID and, as in the real library, no .symtab")
	}
}

func TestTableIsExported(t *testing.T) {
	f, err := elf.Open(driver(t).Library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := exports(t, f)
	for _, row := range gpuapi.CUDA() {
		if _, ok := all[row.Symbol]; !ok {
			t.Errorf("%s is in the table and not exported", row.Symbol)
		}
	}
	var unknown []string
	for name := range all {
		if gpuapi.LooksLikeAllocator(name) {
			unknown = append(unknown, name)
		}
	}
	if want := []string{"cuGraphAddMemAllocNode"}; !reflect.DeepEqual(unknown, want) {
		t.Errorf("exports that look like allocators: %q, want %q", unknown, want)
	}
}

const mib = 1 << 20

// TestBehaviour runs the cases of testdata/behaviour.c, which checks the results, and checks the ledger.
func TestBehaviour(t *testing.T) {
	d := driver(t)
	program := filepath.Join(t.TempDir(), "behaviour")
	if out, err := exec.Command("gcc", "-O1", "-o", program, "testdata/behaviour.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	truth := func(alloc, objects, failed, failures, inUse, left, peak, atPeak uint64) Truth {
		return Truth{Amount{alloc, objects}, Amount{failed, failures}, Amount{inUse, left}, Amount{peak, atPeak}}
	}
	cubes := uint64(64*32*16*4 + 32*16*8*4 + 16*8*4*4)
	for _, test := range []struct {
		name string
		env  []string
		want map[string]Truth
	}{
		{"pointers", nil, map[string]Truth{"device": truth(9*mib, 3, 0, 0, 0, 0, 6*mib, 2)}},
		{"capacity", nil, map[string]Truth{
			"device": truth(100*mib, 2, 41*mib, 1, 40*mib, 1, 100*mib, 2), "pool": truth(0, 0, 1, 1, 0, 0, 0, 0)}},
		{"narrow", nil, map[string]Truth{
			"device": truth(2*mib+10240, 2, 0, 0, 10240, 1, 2*mib, 1), "pinned": truth(mib, 1, 0, 0, 0, 0, mib, 1)}},
		{"kinds", nil, map[string]Truth{
			"device":     truth(10240, 1, 0, 0, 10240, 1, 10240, 1),
			"managed":    truth(5*mib, 1, 0, 0, 0, 0, 5*mib, 1),
			"pinned":     truth(8*mib, 2, 0, 0, mib, 1, 7*mib, 1),
			"registered": truth(4096+8192, 2, 0, 0, 8192, 1, 8192, 1),
			"array":      truth(1600+64*32*16*4+cubes, 3, 0, 0, 64*32*16*4+cubes, 2, 64*32*16*4+cubes, 2)}},
		{"vmm", nil, map[string]Truth{
			"vmm":      truth(1024*mib+20*mib, 6, 1024*mib, 1, 1028*mib, 2, 1028*mib, 2),
			"imported": truth(0, 1, 0, 0, 0, 0, 0, 0)}},
		{"pools", nil, map[string]Truth{"pool": truth(47*mib, 5, 0, 0, 2*mib, 2, 40*mib, 2)}},
		{"ipc", nil, map[string]Truth{
			"device": truth(6*mib, 1, 0, 0, 6*mib, 1, 6*mib, 1), "imported": truth(0, 2, 0, 0, 0, 0, 0, 0)}},
		{"external", nil, map[string]Truth{"imported": truth(0, 2, 0, 0, 0, 0, 0, 0)}},
		{"contexts", nil, map[string]Truth{
			"device": truth(32*mib, 4, 0, 0, 0, 0, 30*mib, 2), "pinned": truth(3*mib, 1, 0, 0, 0, 0, 3*mib, 1),
			"vmm": truth(2*mib, 1, 0, 0, 0, 0, 2*mib, 1)}},
		{"graphs", nil, map[string]Truth{"graph": truth(35*mib, 2, 0, 0, 0, 0, 35*mib, 2)}},
		{"lookup", nil, map[string]Truth{}},
		{"ask", nil, map[string]Truth{"device": truth(mib, 1, 0, 0, mib, 1, mib, 1)}},
		{"forks", nil, map[string]Truth{"device": truth(mib, 1, 0, 0, mib, 1, mib, 1)}},
		{"script", []string{"FAKEGPU_SCRIPT=cuMemAlloc_v2:every=3,result=2;cuMemFree_v2:nth=2,result=1;cuMemAlloc_v2:nth=2,result=999"},
			map[string]Truth{"device": truth(3*mib, 3, 2*mib, 2, mib, 1, 3*mib, 3)}},
		{"torn down", nil, map[string]Truth{"device": truth(mib, 1, 0, 0, mib, 1, mib, 1)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "ledger")
			c := exec.Command(program, d.Library, test.name)
			c.Env = append(append(os.Environ(), d.Env(ledger)...), "FAKEGPU_MEMORY=100MiB", "FAKEGPU_DEVICES=2", "CUDA_VISIBLE_DEVICES=1,0")
			c.Env = append(c.Env, test.env...)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			calls, err := ReadLedger(ledger)
			if err != nil {
				t.Fatal(err)
			}
			if got := Sum(calls); !reflect.DeepEqual(got, test.want) {
				t.Errorf("the ledger says %+v, want %+v", got, test.want)
			}
			checkRows(t, calls)
		})
	}
}

// checkRows compares what agent/gpuapi says of a function with what the library noted, as far as the registers tell.
func checkRows(t *testing.T, calls []Call) {
	t.Helper()
	for _, c := range calls {
		for _, row := range gpuapi.CUDA() {
			if row.Symbol != c.Function {
				continue
			}
			if (row.Role == gpuapi.RoleAllocate) != (c.Class != "") || (c.Class != "" && row.Class.String() != c.Class) {
				t.Errorf("%s gives %q, the table says %s", c.Function, c.Class, row.Class)
			}
			argument := func(n uint8) uint64 { return c.Arguments[n-1] }
			switch row.Size.Kind {
			case gpuapi.SizeArgument:
				if argument(row.Size.Arg) != c.Size {
					t.Errorf("%s: size %d is not argument %d: %v", c.Function, c.Size, row.Size.Arg, c.Arguments)
				}
			case gpuapi.SizeArgument32:
				if argument(row.Size.Arg)&0xffffffff != c.Size {
					t.Errorf("%s: size %d is not argument %d: %v", c.Function, c.Size, row.Size.Arg, c.Arguments)
				}
			case gpuapi.SizePitch, gpuapi.SizePitch32:
				if height := argument(row.Size.Arg2); c.Size%height != 0 || c.Size/height < argument(row.Size.Arg+1) {
					t.Errorf("%s: size %d is not rows of argument %d: %v", c.Function, c.Size, row.Size.Arg2, c.Arguments)
				}
			case gpuapi.SizeNone:
				if c.Size != 0 {
					t.Errorf("%s: size %d, the table says none", c.Function, c.Size)
				}
			}
		}
	}
}

func TestScriptWaits(t *testing.T) {
	d := driver(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	c := exec.Command(d.Chain, "--iterations", "2", "--size", "4096")
	c.Env = append(append(os.Environ(), d.Env(ledger)...), "FAKEGPU_SCRIPT=cuMemAlloc_v2:nth=2,delay=70ms;cuMemFree_v2:nth=1,linger=90ms")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := ReadLedger(ledger)
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 4 {
		t.Fatalf("%d calls", len(calls))
	}
	// allocate, allocate after 70 ms, free, free after 90 ms
	if between := calls[1].Time - calls[0].Time; between < 70e6 {
		t.Errorf("the second allocation took effect after %d ns", between)
	}
	if between := calls[3].Time - calls[2].Time; between < 90e6 {
		t.Errorf("the call after the first free took effect after %d ns", between)
	}
}

func TestSettingsAreRefused(t *testing.T) {
	d := driver(t)
	for _, setting := range []string{
		"FAKEGPU_MEMORY=lots", "FAKEGPU_MEMORY=1GB", "FAKEGPU_DEVICES=0", "FAKEGPU_DEVICES=17", "FAKEGPU_SCRIPT=cuMemAlloc_v2",
		"FAKEGPU_SCRIPT=cuMemAlloc_v2:often=3", "FAKEGPU_SCRIPT=cuMemAlloc_v2:delay=3d", "FAKEGPU_LEDGER=/nowhere/ledger",
	} {
		c := exec.Command(d.Bench, "--depth", "4", "--calls", "1", "--repeats", "1")
		c.Env = append(append(os.Environ(), d.Env("")...), setting)
		name, _, _ := strings.Cut(setting, "=")
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), name) {
			t.Errorf("%s: %v: %s", setting, err, out)
		}
	}
}

func TestBuildNeedsACompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Build(context.Background(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install gcc g++") {
		t.Errorf("%v", err)
	}
}

func TestReadLedgerRefusesRubbish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	for _, content := range []string{`{"time":1}`, "{\n", "[]\n", `{"result":"0"}` + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if calls, err := ReadLedger(path); err == nil {
			t.Errorf("%q: %v", content, calls)
		}
	}
	if _, err := ReadLedger(path + "-none"); err == nil {
		t.Error("a file that is not there was read")
	}
}
