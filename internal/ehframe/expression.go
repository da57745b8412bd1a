package ehframe

// DWARF operations (DWARF 5, 7.7.1).
const (
	opDeref  = 0x06
	opAnd    = 0x1a
	opPlus   = 0x22
	opShl    = 0x24
	opGe     = 0x2a
	opLit0   = 0x30
	opLit3   = 0x33
	opLit15  = 0x3f
	opBreg6  = 0x76 // rbp
	opBreg7  = 0x77 // rsp
	opBreg16 = 0x80 // the return address column, which is rip
)

// Where struct rt_sigframe (arch/x86/include/asm/sigframe.h) has the registers, from rsp once its handler has returned:
// its ucontext's mcontext begins 40 bytes in.
const (
	sigframeBP = 40 + 10*8
	sigframeSP = 40 + 15*8
	sigframePC = 40 + 16*8

	sigframeCFA = sigframeSP | uint16(DerefSP)
)

// cfaExpression gives the Row.CFA of what DW_CFA_def_cfa_expression carries: the linker's expression for stubs, or the
// word at rsp or rbp plus an offset, as after a stack was re-aligned.
func cfaExpression(e []byte) uint16 {
	if threshold, ok := pltExpression(e); ok {
		return threshold<<3 | uint16(PLT)
	}
	if n := len(e); n > 2 && e[n-1] == opDeref {
		kind := DerefBP
		if e[0] == opBreg7 {
			kind = DerefSP
		}
		if offset, ok := baseExpression(e[:n-1]); ok && offset%8 == 0 && offset >= -1<<15 && offset < 1<<15 {
			return uint16(int16(offset)) | uint16(kind)
		}
	}
	return bad(Expression)
}

// baseExpression reads "DW_OP_breg6 n" and "DW_OP_breg7 n".
func baseExpression(e []byte) (offset int64, ok bool) {
	r := reader{b: e}
	op := r.u8()
	offset = r.sleb()
	return offset, (op == opBreg6 || op == opBreg7) && !r.bad && r.left() == 0
}

// pltExpression recognises what linkers write for the procedure linkage table, rsp + 8 + ((rip & 15) >= n) << 3, and
// gives n (binutils, bfd/elfxx-x86.c and bfd/elf64-x86-64.c).
func pltExpression(e []byte) (uint16, bool) {
	if len(e) != 11 || e[6] < opLit0 || e[6] > opLit15 {
		return 0, false
	}
	want := [11]byte{opBreg7, 8, opBreg16, 0, opLit15, opAnd, e[6], opGe, opLit3, opShl, opPlus}
	return uint16(e[6] - opLit0), [11]byte(e) == want
}

// expression handles the places that DW_CFA_expression gives: where a function re-aligned its stack, the caller's rbp is
// at "DW_OP_breg6 0"; in a signal frame, registers are at their offsets from rsp.
func (s *state) expression(register uint64, e []byte) {
	bp, ra := bpLost, raMoved
	if offset, ok := baseExpression(e); ok {
		switch {
		case e[0] == opBreg6 && offset == 0:
			bp = bpAtBP
		case e[0] == opBreg7 && offset == sigframeBP:
			bp = bpSignal
		case e[0] == opBreg7 && offset == sigframePC:
			ra = raSignal
		}
	}
	s.set(register, bp, ra)
}
