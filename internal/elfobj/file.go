// Package elfobj reads what profiling needs of an ELF file: its identity, where its segments lie, its symbols and unwind
// sections, and a reduced copy that a symbolizer can work with.
//
// Files come from other people's containers and uploads, so every size in a header is checked against the size of the
// file before anything is read, nothing is allocated on a header's word, and tables are read in pieces. Of a broken file
// what is whole can still be read: a bad section table costs the sections, not the segments.
package elfobj

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Sizes of the structures of a 64-bit file (System V ABI, chapter 4 and 5).
const (
	headerSize        = 64 // Elf64_Ehdr
	programHeaderSize = 56 // Elf64_Phdr
	sectionHeaderSize = 64 // Elf64_Shdr
	symbolSize        = 24 // Elf64_Sym
	dynamicSize       = 16 // Elf64_Dyn
)

// Limits on the tables of one file. The largest known linked files have some hundred sections.
const (
	maxSections = 1 << 17
	maxSegments = 1 << 9
)

// ErrOutside says that a header speaks of bytes that the file does not have, or of more than is ever read at once.
var ErrOutside = errors.New("outside the file or over the limit")

// File is an open ELF file. It reads through the reader that it was given and does not own it. Its methods may be called
// from several goroutines.
type File struct {
	reader io.ReaderAt
	size   int64

	abi      [2]byte // EI_OSABI, EI_ABIVERSION
	fileType elf.Type
	machine  elf.Machine
	flags    uint32
	entry    uint64
	programs []program
	sections []Section
	broken   error // why there are no sections, if there should be some
	names    int   // index of the section with the names of sections
	buildID  []byte
}

// program is an Elf64_Phdr.
type program struct {
	kind          elf.ProgType
	flags         elf.ProgFlag
	offset        uint64
	vaddr, paddr  uint64
	filesz, memsz uint64
	alignment     uint64
}

// Open reads the headers of a little-endian 64-bit ELF file of size bytes.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{reader: r, size: size}
	h := make([]byte, headerSize)
	if err := f.readAt(h, 0); err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if string(h[:4]) != elf.ELFMAG {
		return nil, errors.New("read ELF header: not an ELF file")
	}
	if elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errors.New("read ELF header: only 64-bit little-endian files are supported")
	}
	le := binary.LittleEndian
	f.abi = [2]byte{h[elf.EI_OSABI], h[elf.EI_ABIVERSION]}
	f.fileType, f.machine = elf.Type(le.Uint16(h[16:])), elf.Machine(le.Uint16(h[18:]))
	f.entry, f.flags = le.Uint64(h[24:]), le.Uint32(h[48:])
	programsAt, programSize, programs := le.Uint64(h[32:]), le.Uint16(h[54:]), uint64(le.Uint16(h[56:]))
	sectionsAt, sectionSize, sections := le.Uint64(h[40:]), le.Uint16(h[58:]), uint64(le.Uint16(h[60:]))
	names := uint64(le.Uint16(h[62:]))

	// Counts that do not fit the header are in section 0 (System V ABI, "extended numbering").
	if sectionsAt != 0 && sectionSize == sectionHeaderSize && (sections == 0 || names == uint64(elf.SHN_XINDEX) || programs == 0xffff) {
		first := make([]byte, sectionHeaderSize)
		if err := f.readAt(first, sectionsAt); err == nil {
			if sections == 0 {
				sections = le.Uint64(first[32:])
			}
			if names == uint64(elf.SHN_XINDEX) {
				names = uint64(le.Uint32(first[40:]))
			}
			if programs == 0xffff { // PN_XNUM
				programs = uint64(le.Uint32(first[44:]))
			}
		}
	}
	if programs > 0 {
		if programSize != programHeaderSize {
			return nil, fmt.Errorf("read program headers: entries of %d bytes", programSize)
		}
		b, err := f.bytes(programsAt, programs*programHeaderSize, maxSegments*programHeaderSize)
		if err != nil {
			return nil, fmt.Errorf("read program headers: %w", err)
		}
		f.programs = parsePrograms(b)
	}
	if sectionsAt != 0 && sections > 0 {
		f.broken = f.readSections(sectionsAt, sectionSize, sections, names)
	}
	f.buildID = f.findBuildID()
	return f, nil
}

func parsePrograms(b []byte) []program {
	le := binary.LittleEndian
	out := make([]program, 0, len(b)/programHeaderSize)
	for ; len(b) >= programHeaderSize; b = b[programHeaderSize:] {
		out = append(out, program{
			kind: elf.ProgType(le.Uint32(b)), flags: elf.ProgFlag(le.Uint32(b[4:])),
			offset: le.Uint64(b[8:]), vaddr: le.Uint64(b[16:]), paddr: le.Uint64(b[24:]),
			filesz: le.Uint64(b[32:]), memsz: le.Uint64(b[40:]), alignment: le.Uint64(b[48:]),
		})
	}
	return out
}

// Machine is the file's instruction set.
func (f *File) Machine() elf.Machine { return f.machine }

// Type tells executables at a fixed address (ET_EXEC) from shared objects and position-independent executables (ET_DYN).
func (f *File) Type() elf.Type { return f.fileType }

// BuildID is the GNU build ID; nil if the file has none. It is the file's: do not change it.
func (f *File) BuildID() []byte { return f.buildID }

// Identity names the file as vramprof.symbolizer.v1.Object.build_id does: "gnu:" and the build ID, or for a file without
// one "sha256:" and the digest of its reduced copy, which reads all its symbol tables.
func (f *File) Identity() (string, error) {
	if len(f.buildID) > 0 {
		return "gnu:" + hex.EncodeToString(f.buildID), nil
	}
	h := sha256.New()
	if err := f.reduce(h); err != nil {
		return "", fmt.Errorf("digest of a file without build ID: %w", err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// holds tells whether the file has size bytes at offset.
func (f *File) holds(offset, size uint64) bool {
	return offset <= uint64(f.size) && size <= uint64(f.size)-offset
}

// readAt fills b from offset.
func (f *File) readAt(b []byte, offset uint64) error {
	if !f.holds(offset, uint64(len(b))) {
		return fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", len(b), offset, f.size, ErrOutside)
	}
	if n, err := f.reader.ReadAt(b, int64(offset)); n < len(b) {
		return fmt.Errorf("%d bytes at offset %#x: %w", len(b), offset, err)
	}
	return nil
}

// bytes reads size bytes at offset, if the file has them and they are not over the limit.
func (f *File) bytes(offset, size, limit uint64) ([]byte, error) {
	if size > limit || !f.holds(offset, size) {
		return nil, fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", size, offset, f.size, ErrOutside)
	}
	b := make([]byte, size)
	return b, f.readAt(b, offset)
}
