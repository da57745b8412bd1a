package cpython

// Layout is how one interpreter lays out its memory. Offsets are in bytes.
type Layout struct {
	// Minor is the version's second number: 12 for 3.12.
	Minor int
	// AutoTSSKey is the offset of autoTSSkey._key in _PyRuntime: the pthread key, an int, under which each thread keeps its
	// PyThreadState, also while it does not hold the GIL.
	AutoTSSKey uint64
	// Thread is a PyThreadState.
	Thread ThreadState
	// CFrame is what the thread state's cframe points to; only with Thread.CFrame.
	CFrame CFrame
	// Frame is one frame of the program.
	Frame Frame
	// Code is a code object.
	Code CodeObject
	// String is a str object, Bytes a bytes object.
	String StringObject
	Bytes  BytesObject
}

// ThreadState is the part of PyThreadState from which frames are reached.
type ThreadState struct {
	// Frame is a pointer to the innermost frame, where HasFrame; else it is in the CFrame.
	Frame    uint16
	HasFrame bool
	// CFrame is a pointer to the CFrame of the innermost evaluator; 0: this version has none.
	CFrame uint16
}

// CFrame is the record that an evaluator keeps on the C stack, 3.10 to 3.12.
type CFrame struct {
	// Current is a pointer to the innermost frame, where !Thread.HasFrame.
	Current uint16
	// Previous is a pointer to the CFrame of the evaluator that came before.
	Previous uint16
}

// Frame is a PyFrameObject (3.10) or _PyInterpreterFrame.
type Frame struct {
	// Size is how many bytes hold all the fields; at most MaxFrame.
	Size uint16
	// Previous points to the frame that called this one, Code to its code object.
	Previous, Code uint16
	// CodeTag are the low bits of Code that are no part of the address.
	CodeTag uint8
	// Instruction is where it runs, in InstructionSize bytes: see InstructionOffset.
	Instruction     uint16
	InstructionSize uint8
	// Entry says how it is marked that C code entered the interpreter here, EntryAt in which byte, EntryValue by which value.
	Entry      Entry
	EntryAt    uint16
	EntryValue uint8
}

// Entry is how a version marks the frames at which C code entered the interpreter. The marker, or the record beside it,
// is on the C stack in the evaluator's frame: its address tells at which native frame the Python frames belong.
type Entry uint8

const (
	// EntryAlways: each frame has an evaluator of its own; the CFrame is on its C stack (3.10).
	EntryAlways Entry = iota + 1
	// EntryFlag: a frame with the flag is the outermost of its evaluator, whose CFrame is on its C stack (3.11).
	EntryFlag
	// EntryShim: after the outermost frame of an evaluator follows one that is no frame of the program, which is itself
	// on the C stack of the evaluator (3.12 and later).
	EntryShim
)

// CodeObject is a PyCodeObject.
type CodeObject struct {
	// Size is how many bytes hold all the fields, up to MaxCode; instructions come after them.
	Size uint16
	// FirstLine is an int32, Version a uint32 that is new for each code object, 0 without one (3.12 and later).
	FirstLine, Version uint16
	// Filename, Name and QualName are pointers to str objects; QualName is 0 before 3.11.
	Filename, Name, QualName uint16
	// LineTable is a pointer to a bytes object.
	LineTable uint16
	// Bytecode is where the instructions are, inside the object (3.11 and later).
	Bytecode uint16
}

// StringObject is a str object in compact form, the only one that code objects have.
type StringObject struct {
	// Length is the number of characters, 8 bytes; State the bit field, 4 bytes.
	Length, State uint16
	// ASCII is where the characters of an ASCII string begin, Other those of all others.
	ASCII, Other uint16
}

// BytesObject is a bytes object.
type BytesObject struct {
	// Length is 8 bytes; Data where the bytes begin.
	Length, Data uint16
}

// MaxFrame is the largest Frame.Size, MaxCode the largest CodeObject.Size: what who copies them must have room for.
const (
	MaxFrame = 128
	MaxCode  = 256
)

// layouts are the versions without debug offsets. Every number is from the DWARF of a build of that version for x86-64,
// and holds for its patch releases.
var layouts = map[int]Layout{
	10: {
		Minor:      10,
		AutoTSSKey: 584 + 4,
		Thread:     ThreadState{Frame: 24, HasFrame: true, CFrame: 48},
		CFrame:     CFrame{Previous: 8},
		Frame:      Frame{Size: 104, Previous: 24, Code: 32, Instruction: 96, InstructionSize: 4, Entry: EntryAlways},
		Code:       CodeObject{Size: 128, FirstLine: 40, Filename: 104, Name: 112, LineTable: 120},
		String:     StringObject{Length: 16, State: 32, ASCII: 48, Other: 72},
		Bytes:      BytesObject{Length: 16, Data: 32},
	},
	11: {
		Minor:      11,
		AutoTSSKey: 592 + 4,
		Thread:     ThreadState{CFrame: 56},
		CFrame:     CFrame{Current: 8, Previous: 16},
		Frame:      Frame{Size: 72, Previous: 48, Code: 32, Instruction: 56, InstructionSize: 8, Entry: EntryFlag, EntryAt: 68, EntryValue: 1},
		Code:       CodeObject{Size: 144, FirstLine: 72, Filename: 112, Name: 120, QualName: 128, LineTable: 136, Bytecode: 184},
		String:     StringObject{Length: 16, State: 32, ASCII: 48, Other: 72},
		Bytes:      BytesObject{Length: 16, Data: 32},
	},
	12: {
		Minor:      12,
		AutoTSSKey: 1544 + 4,
		Thread:     ThreadState{CFrame: 56},
		CFrame:     CFrame{Current: 0, Previous: 8},
		Frame:      Frame{Size: 72, Previous: 8, Code: 0, Instruction: 56, InstructionSize: 8, Entry: EntryShim, EntryAt: 70, EntryValue: 3},
		Code:       CodeObject{Size: 144, FirstLine: 68, Version: 92, Filename: 112, Name: 120, QualName: 128, LineTable: 136, Bytecode: 192},
		String:     StringObject{Length: 16, State: 32, ASCII: 40, Other: 56},
		Bytes:      BytesObject{Length: 16, Data: 32},
	},
}
