// Package ehframe turns the unwind section of an x86-64 ELF file, .eh_frame, into rows of 8 bytes that a kernel program
// can search, and unwinds by the same rows in user space.
//
// A row says how to find a frame's caller while the program is at an address: where the canonical frame address (CFA) is,
// below which the return address lies, and where the caller's rbp was saved. What 8 bytes cannot say is a Bad row with
// the reason, never a guess. The format of the section is the Linux Standard Base's, Core, chapter 10.6, and DWARF 5's,
// chapter 6.4; register numbers are the System V ABI's for x86-64, figure 3.36.
package ehframe

import "sort"

// Row is the rule from PC up to the next row's PC. The kernel half reads the same 8 bytes: struct row of
// agent/bpf/c/layout.h.
type Row struct {
	// PC is an ELF virtual address less Table.Base.
	PC uint32
	// CFA has a Kind in its low three bits and, by kind, an offset or a Reason in the rest.
	CFA uint16
	// BP is where the caller's rbp is saved, in bytes from the CFA; or BPSame, BPUndefined or BPAtBP.
	BP int16
}

// Kind is a way to find the CFA.
type Kind uint16

// The kinds.
const (
	// End: the outermost frame; there is no caller.
	End Kind = 0
	// SP and BP: the register plus the bits above the kind: a multiple of 8 up to 65,528.
	SP Kind = 1
	BP Kind = 2
	// PLT: rsp+8, and 8 more where rip&15 is at least CFA>>3, past the push of the linker's 16-byte stub.
	PLT Kind = 3
	// DerefBP and DerefSP: the word at the register plus CFA&^7 as an int16.
	DerefBP Kind = 4
	DerefSP Kind = 5
	// Signal: the frame is the kernel's struct rt_sigframe; all registers are in it.
	Signal Kind = 6
	// Bad: the rows cannot say, and CFA>>3 is the Reason. If CFA has the LargeCFA bit, it is a large offset: see Large.
	Bad Kind = 7
)

const (
	// BPSame: the frame has not touched rbp.
	BPSame = 0x7fff
	// BPUndefined: the caller's rbp is lost.
	BPUndefined = 0x7ffe
	// BPAtBP: the caller's rbp is saved where this frame's rbp points, as in a function that re-aligned its stack.
	BPAtBP = 0x7ffd
	// LargeCFA marks a row of kind Bad as one that Large reads.
	LargeCFA = 1 << 15
)

// Kind tells how the row finds the CFA.
func (r Row) Kind() Kind { return Kind(r.CFA & 7) }

// Reason is why the row cannot say; 0 if it can.
func (r Row) Reason() Reason {
	if r.Kind() != Bad || r.CFA&LargeCFA != 0 {
		return 0
	}
	return Reason(r.CFA >> 3)
}

// Large reads the row of a frame of 64 KiB and more: the CFA is rsp plus offset, and bp is as Row.BP. Such a row gives
// the 12 bits above its kind and all of its BP to the offset in words, less the lowest four bits of BP: 0 for BPSame, 1
// for BPUndefined, else the number of words from the caller's rbp up to the CFA.
func (r Row) Large() (offset uint64, bp int16, ok bool) {
	if r.Kind() != Bad || r.CFA&LargeCFA == 0 {
		return 0, 0, false
	}
	offset = (uint64(r.CFA>>3&0xfff)<<12 | uint64(uint16(r.BP)>>4)) * 8
	switch words := r.BP & 15; words {
	case 0:
		return offset, BPSame, true
	case 1:
		return offset, BPUndefined, true
	default:
		return offset, -8 * words, true
	}
}

// large makes the row that Large reads.
func large(offset int64, bp int16) (Row, bool) {
	words := int16(0)
	switch {
	case bp == BPSame:
	case bp == BPUndefined:
		words = 1
	case bp <= -16 && bp >= -120 && bp%8 == 0:
		words = -bp / 8
	default:
		return Row{}, false
	}
	if offset < 0 || offset%8 != 0 || offset/8 >= 1<<24 {
		return Row{}, false
	}
	n := uint32(offset / 8)
	return Row{CFA: LargeCFA | uint16(n>>12)<<3 | uint16(Bad), BP: int16(uint16(n)<<4) | words}, true
}

// Reason is why a Bad row cannot say.
type Reason uint16

// The reasons.
const (
	NoFDE        Reason = 1 // no function is described here; agent/bpf/c/native.h knows this number
	LargeOffset  Reason = 2 // an offset that is negative, not a multiple of 8, or larger than Large can hold
	RegisterCFA  Reason = 3 // a CFA by another register than rsp and rbp
	Expression   Reason = 4 // a DWARF expression other than those of linkers and compilers
	ReturnMoved  Reason = 5 // the return address is not right below the CFA, or the caller's rsp is not the CFA, as in longjmp
	SignalLayout Reason = 6 // a signal frame other than the kernel's
	Malformed    Reason = 7 // an entry that is cut, or has an instruction that DWARF does not know
)

// String gives the reason as a metric label.
func (r Reason) String() string {
	switch r {
	case NoFDE:
		return "no FDE"
	case LargeOffset:
		return "large offset"
	case RegisterCFA:
		return "CFA by another register"
	case Expression:
		return "DWARF expression"
	case ReturnMoved:
		return "return address moved"
	case SignalLayout:
		return "signal frame layout"
	case Malformed:
		return "malformed entry"
	}
	return "unknown"
}

func bad(r Reason) uint16 { return uint16(r)<<3 | uint16(Bad) }

// Table is the rows of one file. It is not changed after Parse, and may be shared.
type Table struct {
	// Base is the ELF virtual address that Row.PC counts from.
	Base uint64
	// Rows are sorted by PC, no two at the same. Between functions that do not adjoin stands a Bad row of NoFDE, and
	// another after the last.
	Rows []Row
	// Functions is the number of functions that have rows.
	Functions int
	// Unsaid is the number of rows that are Bad, by reason, NoFDE left out. Malformed also counts entries of which not
	// even the function could be read.
	Unsaid map[Reason]int
}

// Find gives the row for an ELF virtual address. ok is false below the first function.
func (t *Table) Find(address uint64) (Row, bool) {
	rel := address - t.Base
	if address < t.Base || rel > 1<<32-1 {
		return Row{CFA: bad(NoFDE), BP: BPSame}, false
	}
	i := sort.Search(len(t.Rows), func(i int) bool { return uint64(t.Rows[i].PC) > rel })
	if i == 0 {
		return Row{CFA: bad(NoFDE), BP: BPSame}, false
	}
	return t.Rows[i-1], true
}
