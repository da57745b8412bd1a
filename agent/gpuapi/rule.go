package gpuapi

// SizeRule says where the bytes of an allocation are. Arguments are counted from 1 in the order of the registers that
// carry them (x86-64: rdi, rsi, rdx, rcx, r8, r9), which is not the order of the C signature where a structure is passed
// by value on the stack.
type SizeRule struct {
	Kind SizeKind
	// Arg and Arg2 are what Kind says.
	Arg, Arg2 uint8
}

// SizeKind is one way to find the bytes of an allocation.
type SizeKind uint8

const (
	// SizeNone is zero bytes: imported memory, and functions that free.
	SizeNone SizeKind = 0
	// SizeArgument is argument Arg, a size_t.
	SizeArgument SizeKind = 1
	// SizeArgument32 is the low 32 bits of argument Arg: an unsigned int, above which the register holds anything.
	SizeArgument32 SizeKind = 2
	// SizePitch is *Arg × Arg2, both size_t, with *Arg (the pitch that the driver chose) read on return. The argument
	// after Arg is the width in bytes, which stands for the pitch where the call failed.
	SizePitch SizeKind = 3
	// SizeArray and SizeArray3D are computed from the CUDA_ARRAY_DESCRIPTOR or CUDA_ARRAY3D_DESCRIPTOR at Arg (cuda.h).
	// Both are a lower bound: the driver's padding is not known.
	SizeArray   SizeKind = 4
	SizeArray3D SizeKind = 5
	// SizeMipmapped is the sum over Arg2 levels (an unsigned int), each half as large in every direction, of the
	// CUDA_ARRAY3D_DESCRIPTOR at Arg.
	SizeMipmapped SizeKind = 6
	// SizePitch32 is SizePitch where the pitch, the width and the height are unsigned ints.
	SizePitch32 SizeKind = 7
)

// PointerRule says where the pointer or handle of an allocation is; arguments are counted as in SizeRule.
type PointerRule struct {
	Kind PointerKind
	Arg  uint8
}

// PointerKind is one way to find a pointer.
type PointerKind uint8

const (
	PointerNone PointerKind = 0
	// PointerOut is the 64-bit value at argument Arg on return.
	PointerOut PointerKind = 1
	// PointerOut32 is the 32-bit value at argument Arg on return: the driver writes no more.
	PointerOut32 PointerKind = 2
	// PointerArgument is argument Arg itself, on entry.
	PointerArgument PointerKind = 3
	// PointerArgument32 is the low 32 bits of argument Arg, on entry.
	PointerArgument32 PointerKind = 4
)
