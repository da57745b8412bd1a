package python

// The three formats of a code object's line table, since CPython 3.6. Each function gives the line of the instruction at a
// byte offset as PyCode_Addr2Line does; ok is false where the code object says that the instruction has none, or its table
// does not speak of it. None fails on any bytes.

// firstVersion and lastVersion are the minor versions whose formats are known.
const (
	firstVersion = 6
	lastVersion  = 14
)

// line gives the line of an instruction by the format of CPython 3.minor.
func line(minor int, firstLine int32, table []byte, instruction uint32) (int32, bool) {
	switch {
	case minor < firstVersion || minor > lastVersion:
		return 0, false
	case minor < 10:
		return lnotabLine(firstLine, table, instruction)
	case minor == 10:
		return rangeLine(firstLine, table, instruction)
	default:
		return locationLine(firstLine, table, instruction)
	}
}

// lnotabLine reads co_lnotab: pairs of an unsigned advance in bytes and a signed one in lines
// (CPython 3.9, Objects/lnotab_notes.txt and PyCode_Addr2Line).
func lnotabLine(firstLine int32, table []byte, instruction uint32) (int32, bool) {
	at, line := uint32(0), firstLine
	for ; len(table) >= 2; table = table[2:] {
		at += uint32(table[0])
		if at > instruction {
			break
		}
		line += int32(int8(table[1]))
	}
	return line, true
}

// rangeLine reads the co_linetable of 3.10: pairs of an unsigned length in bytes and a signed advance in lines, of which
// -128 says that the range has no line (CPython 3.10, Objects/lnotab_notes.txt and Objects/codeobject.c, advance).
func rangeLine(firstLine int32, table []byte, instruction uint32) (int32, bool) {
	const noLine = -128
	end, line := uint32(0), firstLine
	for ; len(table) >= 2; table = table[2:] {
		end += uint32(table[0])
		delta := int8(table[1])
		if delta != noLine {
			line += int32(delta)
		}
		if instruction < end {
			return line, delta != noLine
		}
	}
	return 0, false
}

// The kinds of entries of the location table (CPython 3.11, Objects/locations.md; Include/internal/pycore_code.h,
// _PyCodeLocationInfoKind). Those below oneLine0 are short forms, whose line is the one before.
const (
	kindOneLine0  = 10
	kindOneLine2  = 12
	kindNoColumns = 13
	kindLong      = 14
	kindNone      = 15
)

// locationLine reads the co_linetable of 3.11 and later: entries of one byte with bit 7 set, which has a kind and a length
// in code units of two bytes, and the operands of the kind, which have bit 7 clear.
func locationLine(firstLine int32, table []byte, instruction uint32) (int32, bool) {
	end, line := uint64(0), firstLine
	for len(table) > 0 {
		kind, units := table[0]>>3&15, uint64(table[0]&7)+1
		table = table[1:]
		switch {
		case kind == kindLong || kind == kindNoColumns:
			line += signedVarint(table)
		case kind >= kindOneLine0 && kind <= kindOneLine2:
			line += int32(kind - kindOneLine0)
		}
		end += units * 2
		if uint64(instruction) < end {
			return line, kind != kindNone
		}
		for len(table) > 0 && table[0]&0x80 == 0 {
			table = table[1:]
		}
	}
	return 0, false
}

// signedVarint reads groups of 6 bits, the lowest first, of which bit 6 says that another follows; the lowest bit of the
// whole is the sign.
func signedVarint(b []byte) int32 {
	value, shift := uint32(0), 0
	for i := 0; i < len(b) && shift < 32; i++ {
		value |= uint32(b[i]&0x3f) << shift
		shift += 6
		if b[i]&0x40 == 0 {
			break
		}
	}
	if value&1 != 0 {
		return -int32(value >> 1)
	}
	return int32(value >> 1)
}
