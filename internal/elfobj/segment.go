package elfobj

import (
	"debug/elf"
	"fmt"
)

// Segment is a PT_LOAD segment: bytes of the file and the addresses that they get.
type Segment struct {
	Vaddr, Offset     uint64
	FileSize, MemSize uint64
	Executable        bool

	alignment uint64
}

// Segments are the file's PT_LOAD segments, in the order of its headers.
func (f *File) Segments() []Segment {
	var out []Segment
	for _, p := range f.programs {
		if p.kind == elf.PT_LOAD {
			out = append(out, Segment{p.vaddr, p.offset, p.filesz, p.memsz, p.flags&elf.PF_X != 0, p.alignment})
		}
	}
	return out
}

// Address gives the virtual address of a byte of the file, by the executable segment that has it.
func (f *File) Address(offset uint64) (uint64, bool) {
	for _, s := range f.Segments() {
		if s.Executable && offset-s.Offset < s.FileSize {
			return offset - s.Offset + s.Vaddr, true
		}
	}
	return 0, false
}

// Offset is the reverse of Address.
func (f *File) Offset(address uint64) (uint64, bool) {
	for _, s := range f.Segments() {
		if s.Executable && address-s.Vaddr < s.FileSize {
			return address - s.Vaddr + s.Offset, true
		}
	}
	return 0, false
}

// LoadBias is what to take from an address in an executable mapping, which begins at start with the file's byte at
// offset, to get the address in the file's own numbering. It wraps around where the file's addresses are higher. ok is
// false if no executable segment is mapped from there.
//
// The kernel maps whole pages, so a mapping begins before its segment does where that does not begin a page, and the
// last page of one segment may be the first of the next: the segment that begins in the mapping's first page wins over
// one that only reaches into it, which is mapped from there only after mprotect has split its mapping.
func (f *File) LoadBias(start, offset uint64) (bias uint64, ok bool) {
	segments := f.Segments()
	for _, page := range pageSizes {
		for _, s := range segments {
			if s.Executable && s.FileSize > 0 && page <= max(s.alignment, pageSizes[0]) && s.Offset&^(page-1) == offset {
				return start - offset + s.Offset - s.Vaddr, true
			}
		}
	}
	for _, s := range segments {
		if s.Executable && offset-s.Offset < s.FileSize {
			return start - offset + s.Offset - s.Vaddr, true
		}
	}
	return 0, false
}

// pageSizes are those of Linux: of x86-64, and of arm64, which can be built for each.
var pageSizes = [...]uint64{4 << 10, 16 << 10, 64 << 10}

// ReadAddress fills b from a virtual address, by the segment that has it.
func (f *File) ReadAddress(b []byte, address uint64) error {
	for _, s := range f.Segments() {
		if at := address - s.Vaddr; at < s.FileSize && uint64(len(b)) <= s.FileSize-at {
			if err := f.readAt(b, s.Offset+at); err != nil {
				return fmt.Errorf("read address %#x: %w", address, err)
			}
			return nil
		}
	}
	return fmt.Errorf("read address %#x: no segment has %d bytes there", address, len(b))
}
