package elfobj

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// Symbol is one entry of a symbol table.
type Symbol struct {
	Name        string
	Value, Size uint64
	Type        elf.SymType
	Bind        elf.SymBind
	Section     elf.SectionIndex
	// Dynamic says that it is from .dynsym, not from .symtab.
	Dynamic bool
}

// Defined tells whether the file has what the symbol names, rather than importing it.
func (s Symbol) Defined() bool { return s.Section != elf.SHN_UNDEF }

// maxSymbols of one table are several times what the largest known builds have.
const maxSymbols = 16 << 20

// maxNameShare bounds the work that a file can ask for by letting many symbols point into one long name. Linkers merge
// names that end alike, which seldom saves half.
const maxNameShare = 16

// Symbols visits the named entries of .symtab, then of .dynsym, until visit returns false. It reads both in pieces: a
// table of any size costs a few megabytes. A file without tables is no error. What was visited before an error is good.
func (f *File) Symbols(visit func(Symbol) bool) error {
	if f.broken != nil {
		return f.broken
	}
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		more, err := f.table(kind, func(name []byte, s Symbol) bool {
			s.Name = string(name)
			return visit(s)
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Lookup finds defined symbols by name, in .dynsym and then in .symtab. What is not found, or is in a table that cannot
// be read, is not in the map; Symbols tells of such a table.
func (f *File) Lookup(names ...string) map[string]Symbol {
	found := make(map[string]Symbol, len(names))
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[n] = true
	}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		_, _ = f.table(kind, func(name []byte, s Symbol) bool {
			if s.Defined() && wanted[string(name)] {
				if _, ok := found[string(name)]; !ok {
					s.Name = string(name)
					found[s.Name] = s
				}
			}
			return len(found) < len(wanted)
		})
		if len(found) == len(wanted) {
			break
		}
	}
	return found
}

// table visits the first table of a kind. The name is valid during the call only.
func (f *File) table(kind elf.SectionType, visit func(name []byte, s Symbol) bool) (more bool, err error) {
	var s *Section
	for i := range f.sections {
		if f.sections[i].Type == kind {
			s = &f.sections[i]
			break
		}
	}
	if s == nil {
		return true, nil
	}
	names, err := f.stringsOf(s)
	if err != nil {
		return false, err
	}
	if !f.holds(s.Offset, s.Size) || s.Size > maxSymbols*symbolSize {
		return false, fmt.Errorf("read section %s of %d bytes: %w", s.Name, s.Size, ErrOutside)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f.reader, int64(s.Offset), int64(s.Size)), 64<<10)
	var b [symbolSize]byte
	le := binary.LittleEndian
	left := maxNameShare*names.section.Size + maxName
	for range s.Size / symbolSize {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return false, fmt.Errorf("read section %s: %w", s.Name, err)
		}
		name, err := names.name(uint64(le.Uint32(b[:])))
		if err != nil {
			return false, err
		}
		if len(name) == 0 {
			continue
		}
		if uint64(len(name)) > left {
			return false, fmt.Errorf("read section %s: its symbols share names more than %d times", s.Name, maxNameShare)
		}
		left -= uint64(len(name))
		more := visit(name, Symbol{
			Type: elf.ST_TYPE(b[4]), Bind: elf.ST_BIND(b[4]), Section: elf.SectionIndex(le.Uint16(b[6:])),
			Value: le.Uint64(b[8:]), Size: le.Uint64(b[16:]), Dynamic: kind == elf.SHT_DYNSYM,
		})
		if !more {
			return false, nil
		}
	}
	return true, nil
}

func (f *File) stringsOf(s *Section) (*stringTable, error) {
	if s.link == 0 || uint64(s.link) >= uint64(len(f.sections)) {
		return nil, fmt.Errorf("section %s has no string table", s.Name)
	}
	strings := &f.sections[s.link]
	if strings.Type == elf.SHT_NOBITS || !f.holds(strings.Offset, strings.Size) {
		return nil, fmt.Errorf("read section %s of %d bytes: %w", strings.Name, strings.Size, ErrOutside)
	}
	return &stringTable{file: f, section: strings}, nil
}
