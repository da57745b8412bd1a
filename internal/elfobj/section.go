package elfobj

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxSection is the largest section that is read whole, in bytes: several times the .eh_frame of the largest known libraries.
const MaxSection = 256 << 20

// Section is a section header.
type Section struct {
	Name                  string
	Type                  elf.SectionType
	Flags                 elf.SectionFlag
	Address, Offset, Size uint64

	nameAt               uint32
	link, info           uint32
	alignment, entrySize uint64
}

// Sections are the file's section headers, the null section first. It is empty for a file without them. The slice is the
// file's: do not change it.
func (f *File) Sections() []Section { return f.sections }

// Damage tells why the file has no sections although its header speaks of some: it was cut, most likely. It is nil
// otherwise.
func (f *File) Damage() error { return f.broken }

// Section reads the first section of a name whole, and gives its address. ok is false if the file has none, or has no
// bytes for it.
func (f *File) Section(name string) (data []byte, address uint64, ok bool, err error) {
	for i := range f.sections {
		if s := &f.sections[i]; s.Name == name && s.Type != elf.SHT_NOBITS {
			data, err = f.read(s)
			return data, s.Address, err == nil, err
		}
	}
	return nil, 0, false, nil
}

// EHFrame reads the unwind section and the table that points into it, with their addresses. Where an optimizer left
// several sections of that name (BOLT does), it is the one that .eh_frame_hdr speaks of. hdr is nil if the file has no
// table.
func (f *File) EHFrame() (eh []byte, ehAddress uint64, hdr []byte, hdrAddress uint64, err error) {
	hdr, hdrAddress, _, err = f.Section(".eh_frame_hdr")
	if err != nil {
		return nil, 0, nil, 0, err
	}
	var chosen *Section
	pointed := ehFramePointer(hdr, hdrAddress)
	for i := range f.sections {
		s := &f.sections[i]
		if s.Name == ".eh_frame" && s.Type != elf.SHT_NOBITS && (chosen == nil || pointed-s.Address < s.Size) {
			chosen = s
		}
	}
	if chosen == nil {
		return nil, 0, nil, 0, errors.Join(errors.New("the file has no .eh_frame section"), f.broken)
	}
	eh, err = f.read(chosen)
	return eh, chosen.Address, hdr, hdrAddress, err
}

// ehFramePointer decodes the pointer to .eh_frame at the head of .eh_frame_hdr, which linkers write as DW_EH_PE_pcrel |
// DW_EH_PE_sdata4 (Linux Standard Base, Core, 10.6.2).
func ehFramePointer(hdr []byte, address uint64) uint64 {
	if len(hdr) < 8 || hdr[0] != 1 || hdr[1] != 0x1b {
		return 0
	}
	return address + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(hdr[4:]))))
}

func (f *File) read(s *Section) ([]byte, error) {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("read section %s: compressed sections are not supported", s.Name)
	}
	b, err := f.bytes(s.Offset, s.Size, MaxSection)
	if err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.Name, err)
	}
	return b, nil
}

// readSections reads the section table. It leaves no sections behind if it fails.
func (f *File) readSections(offset uint64, entry uint16, count, names uint64) error {
	if entry != sectionHeaderSize || count > maxSections {
		return fmt.Errorf("read section headers: %d entries of %d bytes", count, entry)
	}
	b, err := f.bytes(offset, count*sectionHeaderSize, maxSections*sectionHeaderSize)
	if err != nil {
		return fmt.Errorf("read section headers: %w", err)
	}
	le := binary.LittleEndian
	sections := make([]Section, 0, count)
	for ; len(b) >= sectionHeaderSize; b = b[sectionHeaderSize:] {
		sections = append(sections, Section{
			nameAt: le.Uint32(b), Type: elf.SectionType(le.Uint32(b[4:])), Flags: elf.SectionFlag(le.Uint64(b[8:])),
			Address: le.Uint64(b[16:]), Offset: le.Uint64(b[24:]), Size: le.Uint64(b[32:]),
			link: le.Uint32(b[40:]), info: le.Uint32(b[44:]), alignment: le.Uint64(b[48:]), entrySize: le.Uint64(b[56:]),
		})
	}
	f.sections = sections
	if names == 0 || names >= count {
		return nil // the sections have no names
	}
	table, err := f.bytes(sections[names].Offset, sections[names].Size, maxSectionNames)
	if err != nil {
		return nil
	}
	f.names = int(names)
	for i := range sections {
		if at := sections[i].nameAt; uint64(at) < uint64(len(table)) {
			name := table[at:min(uint64(len(table)), uint64(at)+maxSectionName)]
			if end := bytes.IndexByte(name, 0); end >= 0 {
				sections[i].Name = string(name[:end])
			}
		}
	}
	return nil
}

// Limits on section names: together, and each, so that many sections cannot share one long name a million times.
const (
	maxSectionNames = 16 << 20
	maxSectionName  = 256
)
