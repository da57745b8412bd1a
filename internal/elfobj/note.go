package elfobj

import (
	"debug/elf"
	"encoding/binary"
)

const (
	maxNotes   = 4 << 20 // bytes of all notes
	maxBuildID = 64      // linkers write 8 (xxhash) to 20 bytes (SHA-1), --build-id=0x... up to what people give
)

// findBuildID looks through the notes: by segment, as a file may lack section headers, then by section, as a debug file
// may have empty segments.
func (f *File) findBuildID() []byte {
	left := uint64(maxNotes)
	notes := func(offset, size, alignment uint64) []byte {
		b, err := f.bytes(offset, size, left)
		if err != nil { // broken notes are none: the file is named by its content then
			return nil
		}
		left -= size
		return buildID(b, alignment)
	}
	for _, p := range f.programs {
		if p.kind == elf.PT_NOTE {
			if id := notes(p.offset, p.filesz, p.alignment); id != nil {
				return id
			}
		}
	}
	for _, s := range f.sections {
		if s.Type == elf.SHT_NOTE {
			if id := notes(s.Offset, s.Size, s.alignment); id != nil {
				return id
			}
		}
	}
	return nil
}

// buildID finds NT_GNU_BUILD_ID among notes that are aligned to 4 bytes, or to 8 where their segment says so.
func buildID(notes []byte, alignment uint64) []byte {
	to := uint64(4)
	if alignment == 8 {
		to = 8
	}
	le := binary.LittleEndian
	for len(notes) >= 12 {
		name, description, kind := uint64(le.Uint32(notes)), uint64(le.Uint32(notes[4:])), le.Uint32(notes[8:])
		at := align(12+name, to)
		if at+description > uint64(len(notes)) {
			return nil
		}
		const buildIDNote = 3 // NT_GNU_BUILD_ID
		if kind == buildIDNote && name == 4 && string(notes[12:16]) == "GNU\x00" && description > 0 && description <= maxBuildID {
			return notes[at : at+description : at+description]
		}
		notes = notes[min(uint64(len(notes)), align(at+description, to)):]
	}
	return nil
}

// align rounds n up to a multiple of a power of two.
func align(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }
