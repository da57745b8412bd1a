package ehframe_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/ehframe"
	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/internal/procfs"
)

// step is what testdata/odd.c writes for each instruction, followed by the stack.
type step struct {
	PC, SP, BP, N, Length uint64
	Frames                [64]struct{ PC, SP uint64 }
}

// TestUnwindAgainstLibgcc walks from every instruction of functions of every kind, on the first thread, in a signal
// handler and on another thread, and compares with what libgcc's unwinder found there and then.
func TestUnwindAgainstLibgcc(t *testing.T) {
	for _, b := range builds {
		if slices.Contains(b.flags, noTable) { // libgcc finds functions by the table only
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			odd := build(t, b.compiler, b.flags...)
			steps, maps := filepath.Join(t.TempDir(), "steps"), filepath.Join(t.TempDir(), "maps")
			if out, err := exec.Command(odd, steps, maps).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			find := finder(t, maps)
			data, err := os.ReadFile(steps)
			if err != nil {
				t.Fatal(err)
			}
			n, stops := 0, map[ehframe.Stop]int{}
			for len(data) > 0 && !t.Failed() {
				var s step
				size, err := binary.Decode(data, binary.LittleEndian, &s)
				if err != nil || uint64(len(data)-size) < s.Length {
					t.Fatalf("step %d is cut: %v", n, err)
				}
				stack := data[size : size+int(s.Length)]
				data = data[size+int(s.Length):]
				stops[check(t, n, &s, stack, find)]++
				n++
			}
			if n < 1000 || stops[ehframe.Complete] < n*8/10 || stops[ehframe.NoRows] == 0 {
				t.Errorf("%d steps, %v", n, stops)
			}
			t.Logf("%d steps, %v", n, stops)
		})
	}
}

func check(t *testing.T, n int, s *step, stack []byte, find ehframe.Find) ehframe.Stop {
	t.Helper()
	// Half of the steps see the stack in pieces, cut in the middle of a word.
	from := s.SP - 128
	memory := ehframe.Pieces{{Address: from, Data: stack}}
	if at := 128 + 8*(n%16) + 4; n%2 == 1 && at < len(stack) {
		memory = ehframe.Pieces{{Address: from, Data: stack[:at]}, {Address: from + uint64(at), Data: stack[at:]}}
	}
	got, stop := ehframe.Unwind(ehframe.Regs{PC: s.PC, SP: s.SP, BP: s.BP}, false, false, memory, find)
	want := s.Frames[:s.N]
	switch stop {
	case ehframe.Complete, ehframe.NoRows:
	case ehframe.Unsaid:
		// A stack that is being re-aligned is found by r10, which a walk does not have. No call is made from there.
		table, bias, _ := find(s.PC)
		if row, _ := table.Find(s.PC - bias); len(got) != 1 || row.Reason() != ehframe.RegisterCFA {
			t.Errorf("step %d: %s after %d frames, %v", n, stop, len(got), row.Reason())
		}
		return stop
	default:
		t.Errorf("step %d at %#x: %s after %d of %d frames", n, s.PC, stop, len(got), len(want))
		return stop
	}
	if len(got) != len(want) {
		t.Errorf("step %d at %#x: %d frames and %s, want %d: %+v, %+v", n, s.PC, len(got), stop, len(want), got, want)
		return stop
	}
	for i := range want {
		if got[i].PC != want[i].PC || i > 0 && got[i-1].CFA != want[i].SP {
			t.Errorf("step %d at %#x: frame %d is %+v, want %+v", n, s.PC, i, got, want)
			return stop
		}
	}
	return stop
}

// finder finds the rows for an address by a copy of /proc/PID/maps.
func finder(t *testing.T, maps string) ehframe.Find {
	t.Helper()
	text, err := os.ReadFile(maps)
	if err != nil {
		t.Fatal(err)
	}
	type mapping struct {
		procfs.Mapping
		table *ehframe.Table
		bias  uint64
	}
	var mapped []mapping
	if err := procfs.Maps(bytes.NewReader(text), func(m procfs.Mapping) bool {
		if !m.Executable {
			return true
		}
		at := mapping{Mapping: m}
		if strings.HasPrefix(m.Path, "/") {
			var object *elfobj.File
			at.table, object = parse(t, m.Path)
			var ok bool
			if at.bias, ok = object.LoadBias(m.Start, m.Offset); !ok {
				t.Fatalf("no load bias of %+v", m)
			}
		}
		mapped = append(mapped, at)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return func(address uint64) (*ehframe.Table, uint64, bool) {
		i := slices.IndexFunc(mapped, func(m mapping) bool { return m.Start <= address && address < m.End })
		if i < 0 {
			return nil, 0, false
		}
		return mapped[i].table, mapped[i].bias, true
	}
}

// words is memory by address.
type words map[uint64]uint64

func (w words) Word(address uint64) (uint64, bool) { v, ok := w[address]; return v, ok }

func TestUnwindStops(t *testing.T) {
	row := func(kind ehframe.Kind, rest uint16, bp int16) *ehframe.Table {
		return &ehframe.Table{Base: 0x1000, Rows: []ehframe.Row{{PC: 0, CFA: rest | uint16(kind), BP: bp}}}
	}
	end := row(ehframe.End, 0, ehframe.BPSame)
	regs := ehframe.Regs{PC: 0x5001010, SP: 0x7000, BP: 0x7100}
	for _, c := range []struct {
		name            string
		table           *ehframe.Table
		isReturn, entry bool
		memory          words
		want            ehframe.Stop
		frames          []ehframe.Frame
	}{
		{"outermost", end, false, false, nil, ehframe.Complete, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP}}},
		{"no table", nil, true, false, nil, ehframe.NoRows, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP, Return: true}}},
		{"between functions", row(ehframe.Bad, uint16(ehframe.NoFDE)<<3, ehframe.BPSame), false, false, nil, ehframe.NoRows, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP}}},
		{"rule that rows cannot say", row(ehframe.Bad, uint16(ehframe.Expression)<<3, ehframe.BPSame), false, false, nil, ehframe.Unsaid, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP}}},
		{"stack not there", row(ehframe.SP, 16, ehframe.BPSame), false, false, nil, ehframe.Unreadable, []ehframe.Frame{{PC: regs.PC, CFA: 0x7010}}},
		{"saved rbp not there, and not needed", row(ehframe.SP, 16, -32), false, false, words{0x7008: 0}, ehframe.Complete, []ehframe.Frame{{PC: regs.PC, CFA: 0x7010}}},
		{"rbp lost, and needed", row(ehframe.BP, 16, ehframe.BPUndefined), false, false, words{0x7108: regs.PC}, ehframe.BadCFA, []ehframe.Frame{{PC: regs.PC, CFA: 0x7110}, {PC: regs.PC, CFA: 16, Return: true}}},
		{"CFA not there", row(ehframe.DerefBP, 0xfff8, ehframe.BPSame), false, false, words{0x7100: 1}, ehframe.Unreadable, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP}}},
		{"signal frame not there", row(ehframe.Signal, 0, ehframe.BPSame), false, false, nil, ehframe.Unreadable, []ehframe.Frame{{PC: regs.PC, CFA: regs.SP}}},
		{"CFA below", row(ehframe.DerefSP, 8, ehframe.BPSame), false, false, words{0x7008: 0x6ff8}, ehframe.BadCFA, []ehframe.Frame{{PC: regs.PC, CFA: 0x6ff8}}},
		{"return address of 0", row(ehframe.SP, 16, ehframe.BPSame), false, false, words{0x7008: 0}, ehframe.Complete, []ehframe.Frame{{PC: regs.PC, CFA: 0x7010}}},
		{"junk return address", row(ehframe.SP, 16, ehframe.BPSame), false, false, words{0x7008: 3}, ehframe.NoMapping, []ehframe.Frame{{PC: regs.PC, CFA: 0x7010}}},
		{"entry of a function without rows", end, false, true, words{0x7000: 0x5001020}, ehframe.Complete, []ehframe.Frame{{PC: regs.PC, CFA: 0x7008}, {PC: 0x5001020, CFA: 0x7008, Return: true}}},
		{"entry, stack not there", end, false, true, nil, ehframe.Unreadable, []ehframe.Frame{{PC: regs.PC, CFA: 0x7008}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, stop := ehframe.Unwind(regs, c.isReturn, c.entry, c.memory, func(at uint64) (*ehframe.Table, uint64, bool) {
				return c.table, 0x5000000, at > 0x5000000 && at < 0x6000000
			})
			if stop != c.want || !slices.Equal(got, c.frames) {
				t.Errorf("%+v, %s; want %+v, %s", got, stop, c.frames, c.want)
			}
		})
	}
}

// A stack that leads back into itself ends, whatever is in it.
func TestUnwindEnds(t *testing.T) {
	table := &ehframe.Table{Rows: []ehframe.Row{{CFA: uint16(ehframe.Signal), BP: ehframe.BPSame}}}
	memory := words{40 + 10*8: 0, 40 + 15*8: 0, 40 + 16*8: 9} // a signal frame that was interrupted in itself
	frames, stop := ehframe.Unwind(ehframe.Regs{PC: 9}, false, false, memory, func(uint64) (*ehframe.Table, uint64, bool) { return table, 0, true })
	if len(frames) != ehframe.MaxFrames || stop != ehframe.Depth {
		t.Errorf("%d frames, %s", len(frames), stop)
	}
}

func TestStopsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := ehframe.Complete; s <= ehframe.BadCFA; s++ {
		seen[fmt.Sprint(s)] = true
	}
	for r := ehframe.NoFDE; r <= ehframe.Malformed; r++ {
		seen[fmt.Sprint(r)] = true
	}
	if len(seen) != int(ehframe.BadCFA)+1+int(ehframe.Malformed) || seen["unknown"] {
		t.Errorf("%v", seen)
	}
}
