package ehframe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/ehframe"
)

const at = 0x40000 // where sections lie in these tests

// section writes .eh_frame.
type section struct{ b []byte }

func (s *section) entry(wide bool, body []byte) int {
	start := len(s.b)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	if wide {
		s.b = binary.LittleEndian.AppendUint32(s.b, 0xffffffff)
		s.b = binary.LittleEndian.AppendUint64(s.b, uint64(len(body)))
	} else {
		s.b = binary.LittleEndian.AppendUint32(s.b, uint32(len(body)))
	}
	s.b = append(s.b, body...)
	return start
}

// usual is the CIE that compilers write: addresses relative to where they stand, CFA at rsp+8, return address below it.
var usual = "\x01zR\x00\x01\x78\x10\x01\x1b" + "\x0c\x07\x08\x90\x01"

func (s *section) cie(text string) int { return s.entry(false, append([]byte{0, 0, 0, 0}, text...)) }

// fde writes an entry with addresses of four bytes relative to where they stand.
func (s *section) fde(cie int, start, length uint64, instructions string) int {
	return s.fdeOf(false, cie, func(at uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(start-at))
		return binary.LittleEndian.AppendUint32(b, uint32(length))
	}, "\x00"+instructions)
}

func (s *section) fdeOf(wide bool, cie int, addresses func(at uint64) []byte, rest string) int {
	head := len(s.b) + 4
	if wide {
		head += 8
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(head-cie))
	b = append(b, addresses(uint64(at+head+4))...)
	return s.entry(wide, append(b, rest...))
}

func rows(t *testing.T, s *section, hdr []byte) (*ehframe.Table, string) {
	t.Helper()
	table, err := ehframe.Parse(s.b, at, hdr, at-0x1000)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, r := range table.Rows {
		shown = append(shown, fmt.Sprintf("%x: %s", table.Base+uint64(r.PC), show(r)))
	}
	return table, strings.Join(shown, "; ")
}

func TestParse(t *testing.T) {
	abs := func(start, length uint64) func(uint64) []byte {
		return func(uint64) []byte {
			return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, start), length)
		}
	}
	for _, c := range []struct {
		name  string
		write func(*section)
		want  string
	}{
		{"push, call, pop", func(s *section) { s.fde(s.cie(usual), 0x1000, 9, "\x41\x0e\x10\x86\x02\x47\x0e\x08") },
			"1000: rsp+8, bp same; 1001: rsp+16, bp c-16; 1008: rsp+8, bp c-16; 1009: no FDE"},
		{"functions that adjoin, in another order", func(s *section) {
			c := s.cie(usual)
			s.fde(c, 0x1010, 16, "\x41\x0e\x10")
			s.fde(c, 0x1000, 16, "")
			s.fde(c, 0x1030, 16, "")
		}, "1000: rsp+8, bp same; 1011: rsp+16, bp same; 1020: no FDE; 1030: rsp+8, bp same; 1040: no FDE"},
		{"64-bit lengths, a terminator in the middle", func(s *section) {
			c := s.entry(true, append([]byte{0, 0, 0, 0}, "\x01\x00\x01\x78\x10\x0c\x07\x08\x90\x01"...))
			s.b = append(s.b, 0, 0, 0, 0)
			s.fdeOf(true, c, abs(0x1000, 16), "\x41\x0e\x10")
		}, "1000: rsp+8, bp same; 1001: rsp+16, bp same; 1010: no FDE"},
		{"version 3", func(s *section) {
			s.fdeOf(false, s.cie("\x03\x00\x01\x78\x90\x00\x0c\x07\x08\x90\x01"), abs(0x1000, 16), "")
		}, "1000: rsp+8, bp same; 1010: no FDE"},
		{"version 4", func(s *section) {
			s.fdeOf(false, s.cie("\x04\x00\x08\x00\x01\x78\x10\x0c\x07\x08\x90\x01"), abs(0x1000, 16), "")
		}, "1000: rsp+8, bp same; 1010: no FDE"},
		{"personality, LSDA, addresses of 2 bytes", func(s *section) {
			c := s.cie("\x01zPLR\x00\x01\x78\x10\x07\x9b\x01\x02\x03\x04\x1b\x02" + "\x0c\x07\x08\x90\x01")
			s.fdeOf(false, c, func(uint64) []byte { return []byte{0, 0x10, 16, 0} }, "\x04\x01\x02\x03\x04\x41\x0e\x10")
		}, "1000: rsp+8, bp same; 1001: rsp+16, bp same; 1010: no FDE"},
		{"LEB128 addresses", func(s *section) {
			c := s.cie("\x01zR\x00\x01\x78\x10\x01\x01" + "\x0c\x07\x08\x90\x01")
			s.fdeOf(false, c, func(uint64) []byte { return []byte{0x80, 0x20, 0x90, 0x00} }, "\x00")
		}, "1000: rsp+8, bp same; 1010: no FDE"},
		{"unknown letter", func(s *section) {
			c := s.cie("\x01zRX\x00\x01\x78\x10\x03\x1b\x01\x02" + "\x0c\x07\x08\x90\x01")
			s.fde(c, 0x1000, 16, "")
		}, "1000: rsp+8, bp same; 1010: no FDE"},
		{"code alignment of 2, every kind of advance, arguments", func(s *section) {
			c := s.cie("\x01zR\x00\x02\x78\x10\x01\x1b" + "\x0c\x07\x08\x90\x01")
			s.fde(c, 0x1000, 0x400, "\x2e\x10\x41\x0e\x10\x02\x02\x0e\x18\x03\x03\x00\x0e\x20\x04\x04\x00\x00\x00\x0e\x28")
		}, "1000: rsp+8, bp same; 1002: rsp+16, bp same; 1006: rsp+24, bp same; 100c: rsp+32, bp same; 1014: rsp+40, bp same; 1400: no FDE"},
		{"set_loc", func(s *section) {
			s.fdeOf(false, s.cie("\x01\x00\x01\x78\x10\x0c\x07\x08\x90\x01"), abs(0x1000, 16), "\x01\x04\x10\x00\x00\x00\x00\x00\x00\x0e\x10")
		}, "1000: rsp+8, bp same; 1004: rsp+16, bp same; 1010: no FDE"},
		{"remember and restore", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 16, "\x41\x0e\x10\x86\x02\x43\x0d\x06\x42\x0a\xc6\x0c\x07\x08\x41\x0b\x42\x07\x06")
		}, "1000: rsp+8, bp same; 1001: rsp+16, bp c-16; 1004: rbp+16, bp c-16; 1006: rsp+8, bp same; 1007: rbp+16, bp c-16; 1009: rbp+16, bp lost; 1010: no FDE"},
		{"signed and extended forms", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 16, "\x41\x13\x7e\x41\x12\x06\x7d\x41\x11\x06\x02\x41\x05\x06\x03\x41\x06\x06\x41\x08\x06\x41\x2f\x06\x04")
		}, "1000: rsp+8, bp same; 1001: rsp+16, bp same; 1002: rbp+24, bp same; 1003: rbp+24, bp c-16; 1004: rbp+24, bp c-24; 1005: rbp+24, bp same; 1007: rbp+24, bp c+32; 1010: no FDE"},
		{"outermost", func(s *section) { s.fde(s.cie(usual), 0x1000, 16, "\x07\x10") }, "1000: end; 1010: no FDE"},
		{"return address in a register and back, as in vfork", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 16, "\x41\x0e\x00\x09\x10\x05\x44\x0e\x08\x90\x01")
		}, "1000: rsp+8, bp same; 1001: return address moved; 1005: rsp+8, bp same; 1010: no FDE"},
		{"return address restored", func(s *section) { s.fde(s.cie(usual), 0x1000, 16, "\x16\x10\x01\x30\x41\xd0") },
			"1000: return address moved; 1001: rsp+8, bp same; 1010: no FDE"},
		{"stack of the caller elsewhere", func(s *section) { s.fde(s.cie(usual), 0x1000, 16, "\x14\x07\x02\x41\xc7") },
			"1000: return address moved; 1001: rsp+8, bp same; 1010: no FDE"},
		{"re-aligned stack", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 0x40, "\x45\x0c\x0a\x00\x4a\x10\x06\x02\x76\x00\x44\x0f\x03\x76\x78\x06")
		}, "1000: rsp+8, bp same; 1005: CFA by another register; 1013: *rbp-8, bp at bp; 1040: no FDE"},
		{"stubs of the linkage table", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 0x40, "\x0e\x10\x46\x0e\x18\x4a\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22")
		}, "1000: rsp+16, bp same; 1006: rsp+24, bp same; 1010: stub 11, bp same; 1040: no FDE"},
		{"word at rsp, and an expression of another kind", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 16, "\x0f\x04\x77\xf8\x00\x06\x44\x0f\x06\x77\x08\x06\x23\x08\x06")
		}, "1000: *rsp+120, bp same; 1004: DWARF expression; 1010: no FDE"},
		{"large frames", func(s *section) {
			s.fde(s.cie(usual), 0x1000, 0x20, "\x41\x0e\xf8\xff\x03\x41\x0e\x80\x80\x04\x41\x86\x07\x41\x0e\x88\x80\x80\x04\x41\x07\x06\x41\x0e\x80\x80\x80\x40\x41\x0e\x09\x41\x86\x81\x40\x0e\x08")
		}, "1000: rsp+8, bp same; 1001: rsp+65528, bp same; 1002: rsp+65536, bp same; 1003: rsp+65536, bp c-56; 1004: rsp+8388616, bp c-56; 1005: rsp+8388616, bp lost; 1006: large offset; 1020: no FDE"},
		{"rules past the end", func(s *section) { s.fde(s.cie(usual), 0x1000, 4, "\x42\x0e\x10\x43\x0e\x18\x43\x0e\x20") },
			"1000: rsp+8, bp same; 1002: rsp+16, bp same; 1004: no FDE"},
		{"unknown instruction", func(s *section) {
			c := s.cie(usual)
			s.fde(c, 0x1000, 8, "\x42\x0e\x10\x3f\x41\x0e\x18")
			s.fde(c, 0x1008, 8, "")
		}, "1000: rsp+8, bp same; 1002: malformed entry; 1008: rsp+8, bp same; 1010: no FDE"},
		{"restore without remember", func(s *section) { s.fde(s.cie(usual), 0x1000, 8, "\x0b") }, "1000: malformed entry; 1008: no FDE"},
		{"cut expression", func(s *section) { s.fde(s.cie(usual), 0x1000, 8, "\x42\x0f\x30\x77") }, "1000: rsp+8, bp same; 1002: malformed entry; 1008: no FDE"},
		{"signal frame of another layout", func(s *section) {
			s.fde(s.cie(strings.Replace(usual, "zR\x00", "zRS\x00", 1)), 0x1000, 8, "")
		}, "1000: signal frame layout; 1008: no FDE"},
		{"the kernel's signal frame", func(s *section) {
			s.fde(s.cie(strings.Replace(usual, "zR\x00", "zRS\x00", 1)), 0x1000, 8,
				"\x0f\x04\x77\xa0\x01\x06\x10\x06\x03\x77\xf8\x00\x10\x07\x03\x77\xa0\x01\x10\x10\x03\x77\xa8\x01")
		}, "1000: signal; 1008: no FDE"},
		{"a function that the linker dropped", func(s *section) {
			c := s.cie(usual)
			s.fdeOf(false, c, func(uint64) []byte { return []byte{0, 0, 0, 0, 8, 0, 0, 0} }, "\x00")
			s.fde(c, 0x1000, 8, "")
		}, "1000: rsp+8, bp same; 1008: no FDE"},
		{"overlaps: each ends where the next begins, the first of two stands", func(s *section) {
			c := s.cie(usual)
			s.fde(c, 0x1000, 0x40, "\x42\x0e\x10\x5f\x0e\x18")
			s.fde(c, 0x1010, 0x10, "\x0e\x20")
			s.fde(c, 0x1010, 0x80, "\x0e\x28")
		}, "1000: rsp+8, bp same; 1002: rsp+16, bp same; 1010: rsp+32, bp same; 1020: no FDE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &section{}
			c.write(s)
			if _, got := rows(t, s, nil); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What cannot be read costs itself only, and is counted.
func TestParseKeepsWhatIsGood(t *testing.T) {
	const want = "1000: rsp+8, bp same; 1010: no FDE"
	for name, write := range map[string]func(*section){
		"a CIE of another version":     func(s *section) { s.fde(s.cie("\x02"+usual[1:]), 0x2000, 8, "") },
		"a CIE of another machine":     func(s *section) { s.fde(s.cie(strings.Replace(usual, "\x10", "\x1e", 1)), 0x2000, 8, "") },
		"an augmentation without size": func(s *section) { s.fde(s.cie("\x01R\x00\x01\x78\x10\x1b"), 0x2000, 8, "") },
		"a 32-bit CIE":                 func(s *section) { s.fde(s.cie("\x04\x00\x04\x00\x01\x78\x10"), 0x2000, 8, "") },
		"no code alignment":            func(s *section) { s.fde(s.cie(strings.Replace(usual, "\x01\x78", "\x00\x78", 1)), 0x2000, 8, "") },
		"a CIE that is cut":            func(s *section) { s.fde(s.cie("\x01zR\x00\x01\x78\x10\x7f\x1b"), 0x2000, 8, "") },
		"no CIE":                       func(s *section) { s.fde(-100000, 0x2000, 8, "") },
		"an FDE for a CIE":             func(s *section) { s.fde(s.fde(s.cie("\x01bad\x00"), 0x2000, 8, ""), 0x2000, 8, "") },
		"addresses through a pointer":  func(s *section) { s.fde(s.cie(strings.Replace(usual, "\x1b", "\x9b", 1)), 0x2000, 8, "") },
		"a function that wraps": func(s *section) {
			s.fdeOf(false, s.cie("\x01\x00\x01\x78\x10"), func(uint64) []byte { return slices.Repeat([]byte{0xff}, 16) }, "")
		},
		"an entry that is cut": func(s *section) { s.b = append(s.b, 0xff, 0, 0, 0, 1) },
		"a length that is cut": func(s *section) { s.b = append(s.b, 1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &section{}
			s.fde(s.cie(usual), 0x1000, 16, "")
			write(s)
			table, got := rows(t, s, nil)
			if got != want || table.Unsaid[ehframe.Malformed] == 0 || table.Functions != 1 {
				t.Errorf("%s, %d functions, %v", got, table.Functions, table.Unsaid)
			}
		})
	}
}

// header writes .eh_frame_hdr for entries at these offsets.
func header(encoding byte, offsets ...int) []byte {
	const self = at - 0x1000
	b := []byte{1, 0x1b, 0x03, encoding, 0, 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(offsets)))
	for _, o := range offsets {
		if encoding == 0x3c {
			b = binary.LittleEndian.AppendUint64(b, 0)
			b = binary.LittleEndian.AppendUint64(b, uint64(at+o-self))
		} else {
			b = binary.LittleEndian.AppendUint32(b, 0)
			b = binary.LittleEndian.AppendUint32(b, uint32(at+o-self))
		}
	}
	return b
}

// BOLT moves functions and leaves the entries of their old places in the section; the table has the right ones.
func TestParseBelievesTheTable(t *testing.T) {
	s := &section{}
	c := s.cie(usual)
	s.fde(c, 0x1000, 0x40, "\x0e\x10")
	moved := s.fde(c, 0x1000, 0x10, "\x0e\x18")
	other := s.fde(c, 0x1020, 0x10, "\x0e\x20")
	const listed, all = "1000: rsp+24, bp same; 1010: no FDE; 1020: rsp+32, bp same; 1030: no FDE", "1000: rsp+16, bp same; 1020: rsp+32, bp same; 1030: no FDE"
	good := header(0x3b, other, moved)
	for name, c := range map[string]struct {
		hdr  []byte
		want string
	}{
		"table":                    {good, listed},
		"table of 8 bytes":         {header(0x3c, moved, other), listed},
		"the same twice":           {header(0x3b, moved, other, moved), listed},
		"an entry that is outside": {header(0x3b, moved, other, 1<<20), listed},
		"no header":                {nil, all},
		"cut header":               {good[:len(good)-1], all},
		"another version":          {append([]byte{2}, good[1:]...), all},
		"no table":                 {append([]byte{1, 0x1b, 0xff, 0xff}, good[4:]...), all},
		"a table of another kind":  {append([]byte{1, 0x1b, 0x03, 0x1b}, good[4:]...), all},
		"an empty table":           {header(0x3b), all},
	} {
		if _, got := rows(t, s, c.hdr); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	far, none, nested := &section{}, &section{}, &section{}
	c := far.cie("\x01\x00\x01\x78\x10\x0c\x07\x08\x90\x01")
	for _, start := range []uint64{0x1000, 0x1_0000_1000} {
		far.fdeOf(false, c, func(uint64) []byte {
			return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, start), 16)
		}, "")
	}
	none.cie(usual)
	// Entries in each other's instructions: to read each to its end would take a time that grows with their square.
	c = nested.cie(usual)
	const n = 20000
	var offsets []int
	for i := range n {
		offsets = append(offsets, len(nested.b))
		nested.fde(c, uint64(0x1000+16*i), 8, "")
	}
	for _, o := range offsets {
		binary.LittleEndian.PutUint32(nested.b[o:], uint32(len(nested.b)-o-4))
	}
	began := time.Now()
	for name, c := range map[string]struct {
		s    *section
		hdr  []byte
		want error
	}{
		"functions far apart": {far, nil, ehframe.ErrTooFar},
		"no functions":        {none, nil, ehframe.ErrNoFunctions},
		"nothing":             {&section{}, nil, ehframe.ErrNoFunctions},
		"nested entries":      {nested, header(0x3b, offsets...), ehframe.ErrEntriesOverlap},
	} {
		if table, err := ehframe.Parse(c.s.b, at, c.hdr, at-0x1000); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, table, err)
		}
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("took %s", d)
	}
}

func FuzzParse(f *testing.F) {
	s := &section{}
	c := s.cie(usual)
	one := s.fde(c, 0x1000, 16, "\x41\x0e\x10\x86\x02\x0a\x42\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00\x44\x0b\x41\x0e\x80\x80\x04")
	f.Add(s.b, header(0x3b, one))
	f.Add(s.b, []byte{})
	eh, _, hdr, _, err := open(f, "/bin/true").EHFrame()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(eh, hdr)
	f.Fuzz(func(t *testing.T, eh, hdr []byte) {
		table, err := ehframe.Parse(eh, at, hdr, at-0x1000)
		if err != nil {
			return
		}
		if len(table.Rows) > len(eh)+2 {
			t.Errorf("%d rows of %d bytes", len(table.Rows), len(eh))
		}
		unsaid := 0
		for i, r := range table.Rows {
			if i > 0 && r.PC <= table.Rows[i-1].PC {
				t.Errorf("row %d at %#x after %#x", i, r.PC, table.Rows[i-1].PC)
			}
			if got, ok := table.Find(table.Base + uint64(r.PC)); !ok || got != r {
				t.Errorf("row %d is not found: %+v", i, got)
			}
			if r.Reason() > ehframe.NoFDE {
				unsaid++
			}
		}
		for _, n := range table.Unsaid {
			unsaid -= n
		}
		if last := table.Rows[len(table.Rows)-1]; unsaid > 0 || last.Reason() != ehframe.NoFDE {
			t.Errorf("%d Bad rows not counted, the last row is %+v", unsaid, last)
		}
		memory := ehframe.Pieces{{Address: 0x7000, Data: eh}}
		ehframe.Unwind(ehframe.Regs{PC: table.Base, SP: 0x7000, BP: 0x7010}, false, false, memory, func(uint64) (*ehframe.Table, uint64, bool) {
			return table, 0, true
		})
	})
}
