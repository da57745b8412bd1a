package cpython

import (
	"encoding/binary"
	"fmt"
)

// firstWithOffsets is the minor version from which on _PyRuntime begins with debug offsets: _Py_DebugOffsets of
// Include/internal/pycore_runtime.h (3.13) and pycore_debug_offsets.h (3.14).
const firstWithOffsets = 13

// debugOffsets says which word of a version's debug offsets holds what. They are groups of 8-byte words, one group for
// each structure, and versions insert words, so an order is good for one minor version only.
type debugOffsets struct {
	words                                                      int // that are read
	interpreters                                               int
	currentFrame                                               int
	previous, executable, instruction, localsPlus, owner       int
	filename, name, qualName, lineTable, firstLine, bytecode   int
	bytesLength, bytesData, unicodeState, unicodeLength, ascii int

	// What is not in the debug offsets. AutoTSSKey is counted from interpreters.head, which is and moves with it.
	known Layout
}

// What each layout knows besides: autoTSSkey from the DWARF of 3.13.0 and from the code of PyGILState_GetThisThreadState
// in 3.14.6; the owner of shim frames from enum _frameowner; co_version lies in the hole before co_localsplusnames; a
// _PyStackRef (3.14) has its tag in the low bits of a pointer to an object, which is aligned to 8 bytes at least.
var offsetsOf = map[int]debugOffsets{
	13: {
		words: 71, interpreters: 5, currentFrame: 23,
		previous: 29, executable: 30, instruction: 31, localsPlus: 32, owner: 33,
		filename: 35, name: 36, qualName: 37, lineTable: 38, firstLine: 39, bytecode: 43,
		bytesLength: 65, bytesData: 66, unicodeState: 68, unicodeLength: 69, ascii: 70,
		known: Layout{Minor: 13, AutoTSSKey: 1528 + 4, Frame: Frame{EntryValue: 3}, Code: CodeObject{Version: 92}},
	},
	14: {
		words: 81, interpreters: 5, currentFrame: 26,
		previous: 32, executable: 33, instruction: 34, localsPlus: 35, owner: 36,
		filename: 40, name: 41, qualName: 42, lineTable: 43, firstLine: 44, bytecode: 48,
		bytesLength: 75, bytesData: 76, unicodeState: 78, unicodeLength: 79, ascii: 80,
		known: Layout{Minor: 14, AutoTSSKey: 1528 + 4, Frame: Frame{EntryValue: 3, CodeTag: 7}, Code: CodeObject{Version: 92}},
	},
}

// readDebugOffsets makes the layout of an interpreter from the words in its file.
func readDebugOffsets(f File, version string, hex uint32, runtime uint64) (Layout, error) {
	o, ok := offsetsOf[int(hex>>16&0xff)]
	if !ok {
		return Layout{}, &UnsupportedError{version, UnknownVersion}
	}
	b := make([]byte, o.words*8)
	if err := f.ReadAddress(b, runtime); err != nil {
		return Layout{}, fmt.Errorf("read debug offsets of python %s: %w", version, err)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }
	// They begin with a cookie, PY_VERSION_HEX, and whether the build is free-threaded.
	if string(b[:8]) != "xdebugpy" || word(1) != uint64(hex) {
		return Layout{}, &UnsupportedError{version, BadOffsets}
	}
	if word(2) != 0 {
		return Layout{}, &UnsupportedError{version, FreeThreaded}
	}

	// Each field must lie inside its structure, aligned, and each structure be of a size that is read.
	inside := true
	field := func(i int, width, size, limit uint64) uint16 {
		at := word(i)
		inside = inside && size <= limit && at <= size && width <= size-at && at%width == 0
		return uint16(at)
	}
	frame := func(i int, width uint64) uint16 { return field(i, width, word(o.localsPlus), MaxFrame) }
	code := func(i int, width uint64) uint16 { return field(i, width, word(o.bytecode), MaxCode) }
	text := func(i int, width uint64) uint16 { return field(i, width, word(o.ascii), maxHeader) }

	l := o.known
	l.AutoTSSKey += uint64(field(o.interpreters, 8, maxRuntimeHead, maxRuntimeHead))
	l.Thread = ThreadState{Frame: field(o.currentFrame, 8, maxThreadState, maxThreadState), HasFrame: true}
	l.Frame = Frame{
		Size: uint16(word(o.localsPlus)), Previous: frame(o.previous, 8), Code: frame(o.executable, 8), CodeTag: l.Frame.CodeTag,
		Instruction: frame(o.instruction, 8), InstructionSize: 8,
		Entry: EntryShim, EntryAt: frame(o.owner, 1), EntryValue: l.Frame.EntryValue,
	}
	l.Code = CodeObject{
		FirstLine: code(o.firstLine, 4), Version: l.Code.Version, Filename: code(o.filename, 8), Name: code(o.name, 8),
		QualName: code(o.qualName, 8), LineTable: code(o.lineTable, 8), Bytecode: uint16(word(o.bytecode)),
	}
	l.Code.Size = max(l.Code.FirstLine+4, max(l.Code.Version, l.Code.Filename, l.Code.Name, l.Code.QualName, l.Code.LineTable)+8)
	l.String = StringObject{
		Length: text(o.unicodeLength, 8), State: text(o.unicodeState, 4), ASCII: uint16(word(o.ascii)),
		Other: uint16(word(o.ascii)) + compactExtra,
	}
	l.Bytes = BytesObject{Length: field(o.bytesLength, 8, word(o.bytesData), maxHeader), Data: uint16(word(o.bytesData))}
	if !inside {
		return Layout{}, &UnsupportedError{version, BadOffsets}
	}
	return l, nil
}

// What PyCompactUnicodeObject adds to PyASCIIObject: utf8_length and utf8 (Include/cpython/unicodeobject.h, 3.12 on).
const compactExtra = 16

// Sizes above which the words in a file are no offsets: of what stands before the interpreters in _PyRuntimeState (808 in
// 3.14), of PyThreadState (832), and of what stands before the characters of a str or bytes object.
const (
	maxRuntimeHead = 4096
	maxThreadState = 4096
	maxHeader      = 64
)
