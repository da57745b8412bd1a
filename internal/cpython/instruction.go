package cpython

// maxBytecode is more than the compiler can make: instructions are counted in an int.
const maxBytecode = 1 << 31

// InstructionOffset turns the word that a frame of a code object keeps into the offset of the instruction in bytes, as
// line tables count. ok is false for a word that is none of this code object.
//
// The word is an index of 2-byte instructions in 3.10 (f_lasti), later the address of one. A frame that is calling points
// to its call, or into the cache entries behind it, which have the call's line: so this is what the interpreter itself
// takes for tracebacks (PyFrame_GetLasti). A frame that has not begun points before the first instruction and gets the
// first.
func InstructionOffset(l Layout, code, word uint64) (offset uint32, ok bool) {
	at := int64(word - code&^uint64(l.Frame.CodeTag) - uint64(l.Code.Bytecode))
	if l.Frame.InstructionSize == 4 {
		at = int64(int32(word)) * 2
	}
	if at == -2 {
		at = 0
	}
	if at < 0 || at >= maxBytecode || at&1 != 0 {
		return 0, false
	}
	return uint32(at), true
}
