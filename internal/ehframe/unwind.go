package ehframe

import "encoding/binary"

// Regs are the registers that a walk needs.
type Regs struct{ PC, SP, BP uint64 }

// Stop says why a walk ended.
type Stop int

// The reasons.
const (
	Complete   Stop = iota // the outermost frame was reached
	Depth                  // MaxFrames were found
	NoMapping              // an address in no executable mapping
	NoRows                 // a file without rows, or an address that its rows do not describe
	Unreadable             // memory that is not there, or was not copied
	Unsaid                 // a row that cannot say: Row.Reason
	BadCFA                 // a frame that would not lie above the one before
)

// String gives the reason as a metric label and as the text of a frame that marks a cut stack.
func (s Stop) String() string {
	switch s {
	case Complete:
		return "complete"
	case Depth:
		return "too deep"
	case NoMapping:
		return "no executable mapping"
	case NoRows:
		return "no unwind rows"
	case Unreadable:
		return "unreadable memory"
	case Unsaid:
		return "unsupported unwind rule"
	case BadCFA:
		return "bad CFA"
	}
	return "unknown"
}

// Frame is one frame of a walk.
type Frame struct {
	// PC is where the frame is; CFA is its canonical frame address, or its stack pointer where the CFA is not known.
	PC, CFA uint64
	// Return tells whether PC is a return address: then the call is right before it.
	Return bool
}

// MaxFrames bounds a walk: more than any profile keeps.
const MaxFrames = 4096

// Memory is what a walk may read.
type Memory interface {
	// Word gives the 8 bytes at an address, little-endian. ok is false if they are not all there.
	Word(address uint64) (word uint64, ok bool)
}

// Piece is a copy of memory from an address on.
type Piece struct {
	Address uint64
	Data    []byte
}

// Pieces are copies of memory. A word may lie in two that adjoin if they follow each other here.
type Pieces []Piece

// Word implements Memory.
func (m Pieces) Word(address uint64) (uint64, bool) {
	for i, p := range m {
		at := address - p.Address
		if at >= uint64(len(p.Data)) { // a lower address wraps around
			continue
		}
		b := p.Data[at:]
		if len(b) < 8 && i+1 < len(m) && m[i+1].Address == address+uint64(len(b)) {
			var w [8]byte
			n := copy(w[:], b)
			b = w[:n+copy(w[n:], m[i+1].Data)]
		}
		if len(b) >= 8 {
			return binary.LittleEndian.Uint64(b), true
		}
	}
	return 0, false
}

// Find gives the rows of the file that is mapped at an address, and what to take from the address to get the file's own
// numbering. mapped is false where nothing executable is mapped; the table is nil where there are no rows.
type Find func(address uint64) (table *Table, bias uint64, mapped bool)

// Unwind walks from a frame's registers to the outermost frame, as native_step of agent/bpf/c/native.h does in the
// kernel. isReturn tells whether regs.PC is a return address. atEntry says that the first frame is at its function's
// first instructions, with nothing pushed yet: it needs no rows. The frame that the walk could not leave is the last one.
func Unwind(regs Regs, isReturn, atEntry bool, memory Memory, find Find) ([]Frame, Stop) {
	var frames []Frame
	for len(frames) < MaxFrames {
		if atEntry {
			atEntry = false
			frames = append(frames, Frame{PC: regs.PC, CFA: regs.SP + 8, Return: isReturn})
			caller, ok := memory.Word(regs.SP)
			if !ok {
				return frames, Unreadable
			}
			regs.PC, regs.SP, isReturn = caller, regs.SP+8, true
			continue
		}
		at := regs.PC
		if isReturn {
			at-- // the call may be the function's last instruction
		}
		table, bias, mapped := find(at)
		if !mapped {
			if regs.PC == 0 { // a thread's outermost frame that says so by a return address of 0
				return frames, Complete
			}
			return frames, NoMapping
		}
		frame := Frame{PC: regs.PC, CFA: regs.SP, Return: isReturn}
		row := Row{CFA: bad(NoFDE)}
		if table != nil {
			row, _ = table.Find(at - bias)
		}
		if row.Kind() == Signal {
			next, ok := interrupted(regs, memory)
			if ok {
				frame.CFA = next.SP
			}
			frames = append(frames, frame)
			if !ok {
				return frames, Unreadable
			}
			regs, isReturn = next, false
			continue
		}
		next, stop := caller(row, at, regs, memory)
		if next.SP != 0 {
			frame.CFA = next.SP
		}
		frames = append(frames, frame)
		if stop != goOn {
			return frames, stop
		}
		regs, isReturn = next, true
	}
	return frames, Depth
}

const goOn Stop = -1

// caller gives the registers of the frame's caller. With a reason to stop, only SP is meaningful: the frame's CFA, or 0.
func caller(row Row, at uint64, regs Regs, memory Memory) (Regs, Stop) {
	cfa, bp, ok := uint64(0), row.BP, true
	switch row.Kind() {
	case End:
		return Regs{}, Complete
	case SP:
		cfa = regs.SP + uint64(row.CFA&^7)
	case BP:
		cfa = regs.BP + uint64(row.CFA&^7)
	case PLT:
		cfa = regs.SP + 8
		if at&15 >= uint64(row.CFA>>3) {
			cfa += 8
		}
	case DerefBP:
		cfa, ok = memory.Word(regs.BP + uint64(int64(int16(row.CFA&^7))))
	case DerefSP:
		cfa, ok = memory.Word(regs.SP + uint64(int64(int16(row.CFA&^7))))
	default:
		var offset uint64
		if offset, bp, ok = row.Large(); !ok {
			if row.Reason() == NoFDE {
				return Regs{}, NoRows
			}
			return Regs{}, Unsaid
		}
		cfa = regs.SP + offset
	}
	if !ok {
		return Regs{}, Unreadable
	}
	next := Regs{SP: cfa, BP: regs.BP}
	if cfa <= regs.SP {
		return next, BadCFA
	}
	if next.PC, ok = memory.Word(cfa - 8); !ok {
		return next, Unreadable
	}
	// A saved rbp that is not there is 0, which only matters to a frame that is found by it. Compilers leave the rule of a
	// re-aligned stack in force behind the instruction that restored rbp.
	switch bp {
	case BPSame:
	case BPUndefined:
		next.BP = 0
	case BPAtBP:
		next.BP, _ = memory.Word(regs.BP)
	default:
		next.BP, _ = memory.Word(cfa + uint64(int64(bp)))
	}
	return next, goOn
}

// interrupted gives the registers of the code that a signal interrupted, from the handler's frame.
func interrupted(regs Regs, memory Memory) (Regs, bool) {
	pc, okPC := memory.Word(regs.SP + sigframePC)
	sp, okSP := memory.Word(regs.SP + sigframeSP)
	bp, okBP := memory.Word(regs.SP + sigframeBP)
	return Regs{pc, sp, bp}, okPC && okSP && okBP
}
