package cpython

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The interpreter itself is the oracle: what it says of its stacks must be what the layout finds in its memory, with the
// interpreter lock released (the first stop) and held (the second).
func TestStacksInMemoryAreWhatTheInterpreterSays(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			stops := 0
			run(t, python, func(pid int, now told) {
				stops++
				i, runtime := recogniseProcess(t, pid)
				if i.Version != python.Version && i.Version != fmt.Sprintf("3.%d", python.Minor) || i.Layout.Minor != python.Minor {
					t.Errorf("version %s, minor %d", i.Version, i.Layout.Minor)
				}
				mem := openMemory(t, pid)
				for n, thread := range now.Threads {
					frames, anchors := mem.walk(i.Layout, runtime, thread.Ident)
					// At the second stop the innermost frame has gone on since it told of itself.
					leaf := stops == 2
					checkFrames(t, mem, i.Layout, frames, thread.Frames, leaf)
					if n == 0 {
						checkAnchors(t, pid, i.Layout, frames, anchors)
					}
				}
				if len(now.Threads) != 3-stops {
					t.Errorf("%d threads at stop %d", len(now.Threads), stops)
				}
			})
			if stops != 2 {
				t.Errorf("stopped %d times", stops)
			}
		})
	}
}

func checkFrames(t *testing.T, mem memory, l Layout, got []frame, want []toldFrame, leaf bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames, not %d", len(got), len(want))
	}
	for n, w := range want {
		if got[n].code != w.Code {
			t.Fatalf("frame %d: code at %#x, not %#x (%s)", n, got[n].code, w.Code, w.Qualname)
		}
		c, err := ReadCode(mem, l, got[n].code)
		if err != nil {
			t.Fatalf("frame %d (%s): %v", n, w.Qualname, err)
		}
		if c.Filename != w.Filename || c.Name != w.Name || c.QualName != w.Qualname || c.FirstLine != w.Firstline {
			t.Errorf("frame %d: %q %q %q %d, not %+v", n, c.Filename, c.Name, c.QualName, c.FirstLine, w)
		}
		if hex.EncodeToString(c.LineTable) != w.Linetable {
			t.Errorf("frame %d (%s): line table %x, not %s", n, w.Qualname, c.LineTable, w.Linetable)
		}
		offset, ok := InstructionOffset(l, got[n].code, got[n].word)
		if !ok || int(offset) != w.Lasti && (n > 0 || !leaf) {
			t.Errorf("frame %d (%s): instruction %d %t, not %d", n, w.Qualname, offset, ok, w.Lasti)
		}
		copied, err := DecodeCode(copyCode(mem, l, got[n].code), l, got[n].code)
		if err != nil || fmt.Sprint(copied) != fmt.Sprint(c) {
			t.Errorf("frame %d (%s): from copies %+v %v, not %+v", n, w.Qualname, copied, err, c)
		}
	}
}

// copyCode copies what the kernel half copies of a code object.
func copyCode(mem memory, l Layout, code uint64) []Piece {
	mem.t.Helper()
	piece := func(address uint64, size int) Piece {
		p := Piece{Address: address, Data: make([]byte, size)}
		n, _ := mem.ReadAt(p.Data, int64(address)) // the end of a mapping cuts it
		p.Data = p.Data[:n]
		return p
	}
	pieces := []Piece{piece(code, int(l.Code.Size))}
	for _, at := range []uint16{l.Code.Filename, l.Code.Name, l.Code.QualName} {
		if at != 0 {
			pieces = append(pieces, piece(mem.pointer(code+uint64(at)), 1024))
		}
	}
	return append(pieces, piece(mem.pointer(code+uint64(l.Code.LineTable)), 8192))
}

// checkAnchors checks that each entry from C has left its marker on the main thread's stack, further out each time.
func checkAnchors(t *testing.T, pid int, l Layout, frames []frame, anchors []uint64) {
	t.Helper()
	if !slices.IsSorted(anchors) {
		t.Errorf("anchors %#x do not go outwards", anchors)
	}
	// C calls Python at the module itself, the instance's __call__, the comparison of qsort, the next of the generator
	// and the key of max; before 3.11 at each frame.
	entries := 5
	if l.Frame.Entry == EntryAlways {
		entries = len(frames)
	}
	if len(anchors) != entries {
		t.Errorf("%d anchors, not %d", len(anchors), entries)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil || !strings.HasSuffix(line, "[stack]\n") {
			continue
		}
		for _, a := range anchors {
			if a < start || a >= end {
				t.Errorf("anchor %#x is outside the stack %#x-%#x", a, start, end)
			}
		}
		return
	}
	t.Error("no stack in the maps")
}
