package elfobj

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// Reduce writes a valid ELF file with what symbols need of the file in r: the same program and section headers, so that
// addresses and section numbers stay true, and the bytes of the notes and symbol tables, never those of code or data. It
// is deterministic, and the reduced file's own reduced copy is itself.
func Reduce(w io.Writer, r io.ReaderAt, size int64) error {
	f, err := Open(r, size)
	if err != nil {
		return err
	}
	return f.reduce(w)
}

func (f *File) reduce(w io.Writer) error {
	sections, end := f.reducedSections()
	programs := f.reducedPrograms(sections)
	out := &counter{w: w}
	out.write(f.header(end))
	for _, p := range programs {
		out.write(p.bytes())
	}
	for i := range sections {
		if kept := &sections[i]; hasBytes(kept) {
			out.pad(kept.Offset)
			out.copy(io.NewSectionReader(f.reader, int64(f.sections[i].Offset), int64(kept.Size)), int64(kept.Size))
		}
	}
	if len(sections) > 0 {
		out.pad(end)
	}
	for i := range sections {
		out.write(sections[i].bytes())
	}
	if out.err != nil {
		return fmt.Errorf("write reduced file: %w", out.err)
	}
	return nil
}

// reducedSections gives the section headers of the reduced file, and where they begin in it.
func (f *File) reducedSections() (out []Section, end uint64) {
	keep := make([]bool, len(f.sections))
	for i := range f.sections {
		switch s := &f.sections[i]; s.Type {
		case elf.SHT_NOTE:
			keep[i] = true
		case elf.SHT_SYMTAB, elf.SHT_DYNSYM:
			keep[i] = true
			if uint64(s.link) < uint64(len(keep)) && f.sections[s.link].Type == elf.SHT_STRTAB {
				keep[s.link] = true
			}
		}
	}
	if f.names > 0 {
		keep[f.names] = true
	}
	out = append(out, f.sections...)
	at := align(headerSize+uint64(len(f.programs))*programHeaderSize, 8)
	left := uint64(f.size) // sections that overlap must not make the copy larger than the file
	for i := range out {
		s := &out[i]
		switch {
		case i == 0: // the null section holds nothing but counts
			*s = Section{Type: elf.SHT_NULL, Size: s.Size, link: s.link, info: s.info}
		case keep[i] && hasBytes(s) && f.holds(s.Offset, s.Size) && s.Size <= left:
			left -= s.Size
			if s.alignment == 4 { // notes of one segment have to stay side by side
				at = align(at, 4)
			} else {
				at = align(at, 8)
			}
			s.Offset = at
			at += s.Size
		case s.Flags&elf.SHF_ALLOC != 0:
			s.Type, s.Offset = elf.SHT_NOBITS, at
		default:
			*s = Section{nameAt: s.nameAt, Name: s.Name, Type: elf.SHT_NULL}
		}
	}
	return out, align(at, 8)
}

// hasBytes tells whether a section header speaks of bytes in the file.
func hasBytes(s *Section) bool { return s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOBITS }

// reducedPrograms gives the program headers of the reduced file. Notes point to where they are now. PT_LOAD stays,
// for the sake of the file's numbering. The others have no bytes any more.
func (f *File) reducedPrograms(sections []Section) []program {
	out := append([]program(nil), f.programs...)
	for i := range out {
		p := &out[i]
		if p.kind == elf.PT_LOAD {
			continue
		}
		offset, ok := f.movedNotes(p, sections)
		if !ok {
			p.filesz = 0
			if p.kind == elf.PT_INTERP || p.kind == elf.PT_DYNAMIC { // which no reader takes empty
				p.kind = elf.PT_NULL
			}
		}
		p.offset = offset
	}
	return out
}

// movedNotes gives the new offset of a PT_NOTE segment, if all its notes moved together.
func (f *File) movedNotes(p *program, sections []Section) (offset uint64, ok bool) {
	if p.kind != elf.PT_NOTE {
		return 0, false
	}
	at := p.offset // where the next section has to begin
	for i := range f.sections {
		s := &f.sections[i]
		if s.Type != elf.SHT_NOTE || s.Offset-p.offset >= p.filesz {
			continue
		}
		if s.Offset != at || !hasBytes(&sections[i]) {
			return 0, false
		}
		if at == p.offset {
			offset = sections[i].Offset
		}
		if sections[i].Offset-offset != s.Offset-p.offset {
			return 0, false
		}
		at += s.Size
	}
	return offset, p.filesz > 0 && at == p.offset+p.filesz
}

func (f *File) header(sectionsAt uint64) []byte {
	b := make([]byte, headerSize)
	le := binary.LittleEndian
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	b[elf.EI_OSABI], b[elf.EI_ABIVERSION] = f.abi[0], f.abi[1]
	le.PutUint16(b[16:], uint16(f.fileType))
	le.PutUint16(b[18:], uint16(f.machine))
	le.PutUint32(b[20:], uint32(elf.EV_CURRENT))
	le.PutUint64(b[24:], f.entry)
	le.PutUint32(b[48:], f.flags)
	le.PutUint16(b[52:], headerSize)
	le.PutUint16(b[54:], programHeaderSize)
	le.PutUint16(b[58:], sectionHeaderSize)
	if n := len(f.programs); n > 0 {
		le.PutUint64(b[32:], headerSize)
		le.PutUint16(b[56:], uint16(min(n, 0xffff))) // PN_XNUM: section 0 has the count
	}
	if n := len(f.sections); n > 0 {
		le.PutUint64(b[40:], sectionsAt)
		if n < int(elf.SHN_LORESERVE) {
			le.PutUint16(b[60:], uint16(n))
		}
		if f.names < int(elf.SHN_LORESERVE) {
			le.PutUint16(b[62:], uint16(f.names))
		} else {
			le.PutUint16(b[62:], uint16(elf.SHN_XINDEX))
		}
	}
	return b
}

func (p *program) bytes() []byte {
	b := make([]byte, programHeaderSize)
	le := binary.LittleEndian
	le.PutUint32(b, uint32(p.kind))
	le.PutUint32(b[4:], uint32(p.flags))
	le.PutUint64(b[8:], p.offset)
	le.PutUint64(b[16:], p.vaddr)
	le.PutUint64(b[24:], p.paddr)
	le.PutUint64(b[32:], p.filesz)
	le.PutUint64(b[40:], p.memsz)
	le.PutUint64(b[48:], p.alignment)
	return b
}

func (s *Section) bytes() []byte {
	b := make([]byte, sectionHeaderSize)
	le := binary.LittleEndian
	le.PutUint32(b, s.nameAt)
	le.PutUint32(b[4:], uint32(s.Type))
	le.PutUint64(b[8:], uint64(s.Flags))
	le.PutUint64(b[16:], s.Address)
	le.PutUint64(b[24:], s.Offset)
	le.PutUint64(b[32:], s.Size)
	le.PutUint32(b[40:], s.link)
	le.PutUint32(b[44:], s.info)
	le.PutUint64(b[48:], s.alignment)
	le.PutUint64(b[56:], s.entrySize)
	return b
}

// counter writes until the first error and knows how far it is.
type counter struct {
	w   io.Writer
	n   uint64
	err error
}

func (c *counter) write(b []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(b)
		c.n += uint64(n)
	}
}

func (c *counter) pad(to uint64) {
	if to > c.n {
		c.write(make([]byte, to-c.n))
	}
}

func (c *counter) copy(r io.Reader, n int64) {
	if c.err == nil {
		var done int64
		done, c.err = io.CopyN(c.w, r, n)
		c.n += uint64(done)
	}
}
