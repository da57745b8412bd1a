package attach

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// maxFunction is the longest function, in bytes, that is searched for branches back into its prologue.
const maxFunction = 256 << 10

// maxSkipped is how many instructions may come before the probed one. No compiler's or driver's prologue known to us needs
// more than two; the rest is a bound.
const maxSkipped = 4

// place is the chosen instruction of a function.
type place struct {
	offset      int
	instruction string
	why         string
}

var (
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	nop5    = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}
)

// choose picks the instruction to probe from the code of a function. cut says that the code is not all of the function.
func choose(code []byte, cut bool) place {
	first := place{instruction: describe(code), why: "first instruction: single-stepped"}
	if bytes.HasPrefix(code, nop5) {
		first.why = "first instruction: a 5-byte nop is a call into the kernel since Linux 6.18, single-stepped before"
	}
	var skipped []string
	for at := 0; at < len(code) && len(skipped) <= maxSkipped; {
		if emulated(code[at:]) {
			p := place{at, describe(code[at:]), "first instruction: emulated by the kernel"}
			if at == 0 {
				return p
			}
			switch {
			case cut:
				first.why = fmt.Sprintf("first instruction: the function is too long to search for branches to %+#x", at)
				return first
			case enteredWithin(code, at):
				first.why = fmt.Sprintf("first instruction: a branch may enter the function between it and %+#x", at)
				return first
			}
			p.why = "first emulated instruction; skipped: " + strings.Join(skipped, "; ")
			return p
		}
		n, harmless := skippable(code[at:])
		if !harmless {
			break
		}
		skipped = append(skipped, describe(code[at:]))
		at += n
	}
	return first
}

// emulated tells whether code begins with an instruction that arch/x86/kernel/uprobes.c emulates in every kernel that has
// uprobe cookies: branch_setup_xol_ops takes nop, call, jmp and jcc with relative targets, push_setup_xol_ops takes push of
// one register, with a REX prefix of 0x41 or none. Forms with other prefixes differ by kernel and processor and are left out.
func emulated(code []byte) bool {
	at := func(i int) byte {
		if i < len(code) {
			return code[i]
		}
		return 0
	}
	switch op := at(0); {
	case op >= 0x50 && op <= 0x57: // push reg
		return true
	case op == 0x41:
		return at(1) >= 0x50 && at(1) <= 0x57 // push r8 to r15
	case op == 0x90: // nop
		return true
	case op >= 0x70 && op <= 0x7f, op == 0xeb: // jcc, jmp, 8 bits
		return len(code) >= 2
	case op == 0xe8, op == 0xe9: // call, jmp, 32 bits
		return len(code) >= 5
	case op == 0x0f:
		return at(1) >= 0x80 && at(1) <= 0x8f && len(code) >= 6 // jcc, 32 bits
	}
	return false
}

// skippable gives the length of the first instruction and whether a probe may come after it: it falls through, and leaves
// memory, the stack pointer, argument and callee-saved registers alone. Only instructions known to be so pass.
func skippable(code []byte) (int, bool) {
	if bytes.HasPrefix(code, endbr64) {
		return len(endbr64), true
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil {
		return 0, false
	}
	switch in.Op {
	case x86asm.NOP, x86asm.CMP, x86asm.TEST:
		return in.Len, true
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA, x86asm.XOR, x86asm.AND, x86asm.OR, x86asm.ADD, x86asm.SUB:
		return in.Len, scratch(in.Args[0])
	}
	return 0, false
}

// scratch tells whether an operand is a register that the System V ABI gives to the called function, and that carries
// nothing into a function with a prototype: rax, r10, r11.
func scratch(a x86asm.Arg) bool {
	switch a {
	case x86asm.AL, x86asm.AH, x86asm.AX, x86asm.EAX, x86asm.RAX,
		x86asm.R10B, x86asm.R10W, x86asm.R10L, x86asm.R10, x86asm.R11B, x86asm.R11W, x86asm.R11L, x86asm.R11:
		return true
	}
	return false
}

// enteredWithin tells whether a relative branch in a function may land behind its first byte and at or before probe, which
// would count one call twice. It reads a branch at every byte, so it may be wrong about one that is not there and never about
// one that is, and needs no decoder that knows every instruction.
func enteredWithin(code []byte, probe int) bool {
	within := func(from int, displacement int64) bool {
		to := int64(from) + displacement
		return to > 0 && to <= int64(probe)
	}
	for i := range code {
		op := code[i]
		if (op >= 0x70 && op <= 0x7f || op == 0xeb || op >= 0xe0 && op <= 0xe3) && i+2 <= len(code) && // jcc, jmp, loop, jrcxz
			within(i+2, int64(int8(code[i+1]))) {
			return true
		}
		if (op >= 0x80 && op <= 0x8f && i > 0 && code[i-1] == 0x0f || op == 0xe8 || op == 0xe9) && i+5 <= len(code) &&
			within(i+5, int64(int32(uint32(code[i+1])|uint32(code[i+2])<<8|uint32(code[i+3])<<16|uint32(code[i+4])<<24))) {
			return true
		}
	}
	return false
}

// describe gives the text of the first instruction.
func describe(code []byte) string {
	if bytes.HasPrefix(code, endbr64) {
		return "endbr64"
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil {
		return fmt.Sprintf("% x", code[:min(len(code), 8)])
	}
	return x86asm.GNUSyntax(in, math.MaxUint64, nil)
}
