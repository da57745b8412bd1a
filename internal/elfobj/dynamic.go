package elfobj

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const maxDynamic = 1 << 20 // bytes of .dynamic

// NeededLibraries are the names of the shared objects that the file asks the loader for (DT_NEEDED), in its order.
func (f *File) NeededLibraries() ([]string, error) { return f.dynamicStrings(elf.DT_NEEDED) }

// RunPath is where the loader is to look for them: DT_RUNPATH, else DT_RPATH, unexpanded; empty if the file has neither.
func (f *File) RunPath() (string, error) {
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := f.dynamicStrings(tag)
		if err != nil {
			return "", err
		}
		if len(paths) > 0 {
			return paths[0], nil
		}
	}
	return "", nil
}

func (f *File) dynamicStrings(tag elf.DynTag) ([]string, error) {
	for i := range f.sections {
		s := &f.sections[i]
		if s.Type != elf.SHT_DYNAMIC {
			continue
		}
		names, err := f.stringsOf(s)
		if err != nil {
			return nil, err
		}
		b, err := f.bytes(s.Offset, s.Size, maxDynamic)
		if err != nil {
			return nil, fmt.Errorf("read section %s: %w", s.Name, err)
		}
		var out []string
		for ; len(b) >= dynamicSize; b = b[dynamicSize:] {
			if elf.DynTag(binary.LittleEndian.Uint64(b)) != tag {
				continue
			}
			name, err := names.name(binary.LittleEndian.Uint64(b[8:]))
			if err != nil {
				return nil, err
			}
			out = append(out, string(name))
		}
		return out, nil
	}
	return nil, nil
}
