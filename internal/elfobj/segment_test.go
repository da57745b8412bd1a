package elfobj_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/elfobj"
)

// B11: one conversion, right for every way of linking. The program's own word is the truth.
func TestB11AddressOfRunningFunction(t *testing.T) {
	for _, test := range []struct {
		name  string
		flags []string
	}{
		{"PIE", []string{"-pie", "-fPIE"}},
		{"at a fixed address", []string{"-no-pie", "-fno-pie"}},
		{"PIE with a base that is not 0", []string{"-pie", "-fPIE", "-Wl,-Ttext-segment=0x34fd200000"}},
		{"code beside the headers", []string{"-Wl,-z,noseparate-code"}},
		{"gold", []string{"-fuse-ld=gold"}},
		{"gold, a base that is not 0", []string{"-fuse-ld=gold", "-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x7000000"}},
		{"one segment more for a section far away", []string{"-no-pie", "-fno-pie", "-Wl,--section-start=.text.extra=0x9001230"}},
		{"pages of 64 KiB", []string{"-Wl,-z,max-page-size=65536"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := build(t, program, test.flags...)
			lines := strings.Split(strings.TrimSpace(run2(t, path)), "\n")
			var at uint64
			if _, err := fmt.Sscanf(lines[0], "%x", &at); err != nil {
				t.Fatal(err)
			}
			f := open(t, path)
			want, ok := f.Lookup("marker")["marker"]
			if !ok {
				t.Fatal("no symbol")
			}
			for _, line := range lines[1:] {
				var start, end, offset uint64
				if _, err := fmt.Sscanf(line, "%x-%x r-xp %x", &start, &end, &offset); err != nil {
					t.Fatal(line, err)
				}
				bias, ok := f.LoadBias(start, offset)
				if !ok {
					t.Fatalf("no load bias for %s", line)
				}
				if at-bias != want.Value {
					t.Errorf("mapping %s: address %#x, want %#x", line, at-bias, want.Value)
				}
				if at < start || at >= end {
					continue
				}
				if got, ok := f.Address(at - start + offset); !ok || got != want.Value {
					t.Errorf("Address of the byte = %#x, %v, want %#x", got, ok, want.Value)
				}
			}
		})
	}
}

// run2 runs a program whose exit status says nothing.
func run2(t *testing.T, path string) string { return run(t, "sh", "-c", path+"; true") }

// layout makes the headers of a file with segments, padded to a size.
func layout(segments []elfobj.Segment, size int) []byte {
	b := make([]byte, max(size, 64+56*len(segments)))
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], uint16(elf.ET_DYN))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], uint16(len(segments)))
	for i, s := range segments {
		p := b[64+56*i:]
		le.PutUint32(p, uint32(elf.PT_LOAD))
		flags := elf.PF_R
		if s.Executable {
			flags |= elf.PF_X
		}
		le.PutUint32(p[4:], uint32(flags))
		le.PutUint64(p[8:], s.Offset)
		le.PutUint64(p[16:], s.Vaddr)
		le.PutUint64(p[32:], s.FileSize)
		le.PutUint64(p[40:], s.MemSize)
		le.PutUint64(p[48:], 0x1000)
	}
	return b
}

func TestB11ConversionsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 11))
	for range 2000 {
		// Segments as linkers lay them out: address and offset equal within a page, neither ever falling.
		var segments []elfobj.Segment
		address, offset := random.Uint64N(1<<40)<<12, uint64(0)
		for range 1 + random.IntN(6) {
			address += random.Uint64N(1<<20) << 12 // and so any skew between the two
			size := 1 + random.Uint64N(1<<16)
			s := elfobj.Segment{Vaddr: address + offset%4096, Offset: offset, FileSize: size, MemSize: size, Executable: random.IntN(2) == 0}
			segments = append(segments, s)
			address, offset = (s.Vaddr+size+0xfff)&^0xfff, offset+size
			if random.IntN(2) == 0 { // the next begins in a page of its own
				offset = (offset + 0xfff) &^ 0xfff
			}
		}
		b := layout(segments, 0)
		f, err := elfobj.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		bias := random.Uint64() &^ 0xfff
		for _, s := range segments {
			at := random.Uint64N(s.FileSize)
			address, isCode := f.Address(s.Offset + at)
			if isCode != s.Executable || (isCode && address != s.Vaddr+at) {
				t.Fatalf("Address(%#x) = %#x, %v in %+v of %+v", s.Offset+at, address, isCode, s, segments)
			}
			offset, isCode := f.Offset(s.Vaddr + at)
			if isCode != s.Executable || (isCode && offset != s.Offset+at) {
				t.Fatalf("Offset(%#x) = %#x, %v in %+v of %+v", s.Vaddr+at, offset, isCode, s, segments)
			}
			if !s.Executable || sharesFirstPage(s, segments) {
				continue
			}
			// The kernel's mapping of the segment (fs/binfmt_elf.c, elf_map), and the rest of it after a split.
			start, from := bias+s.Vaddr&^0xfff, s.Offset&^0xfff
			if got, ok := f.LoadBias(start, from); !ok || got != bias {
				t.Fatalf("LoadBias(%#x, %#x) = %#x, %v, want %#x; segments %+v", start, from, got, ok, bias, segments)
			}
		}
	}
}

// sharesFirstPage tells whether code of two segments begins in one page of the file, which no linker does: the mapping
// could then be of either.
func sharesFirstPage(s elfobj.Segment, segments []elfobj.Segment) bool {
	for _, other := range segments {
		if other.Executable && other.Offset != s.Offset && other.Offset&^0xfff == s.Offset&^0xfff {
			return true
		}
	}
	return false
}

func TestLoadBias(t *testing.T) {
	segments := []elfobj.Segment{
		{Vaddr: 0x0, Offset: 0x0, FileSize: 0x1800},
		{Vaddr: 0x2800, Offset: 0x1800, FileSize: 0x2000, Executable: true},
		{Vaddr: 0x5800, Offset: 0x3800, FileSize: 0x9000, Executable: true}, // its first page is the last of the one before
	}
	b := layout(segments, 0)
	f, err := elfobj.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	const bias = 0x7f0000000000
	for _, test := range []struct {
		name          string
		start, offset uint64
		ok            bool
	}{
		{"a segment from its first page", bias + 0x2000, 0x1000, true},
		{"a segment from within", bias + 0x3000, 0x2000, true},
		{"a page of two segments belongs to the one that begins there", bias + 0x5000, 0x3000, true},
		{"the rest of a mapping that was split", bias + 0x9000, 0x7000, true},
		{"past the code", bias + 0xf000, 0xd000, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := f.LoadBias(test.start, test.offset); ok != test.ok || ok && got != bias {
				t.Fatalf("LoadBias(%#x, %#x) = %#x, %v", test.start, test.offset, got, ok)
			}
		})
	}
}

func TestReadAddress(t *testing.T) {
	path := build(t, `const char text[] = "a word to find"; int main(void) { return text[0]; }`)
	f := open(t, path)
	s := f.Lookup("text")["text"]
	b := make([]byte, s.Size)
	if err := f.ReadAddress(b, s.Value); err != nil || string(b) != "a word to find\x00" {
		t.Fatalf("read %q, %v", b, err)
	}
	if err := f.ReadAddress(b, 1<<40); err == nil {
		t.Fatal("read what no segment has")
	}
}
