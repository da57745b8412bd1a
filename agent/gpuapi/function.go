package gpuapi

// Function is one exported function of a driver.
type Function struct {
	// Symbol is the exported name, with its version suffix.
	Symbol string
	API    API
	Role   Role
	// Class is the kind of memory that the function gives; ClassNone for one that frees, which takes what its pointer
	// was given as.
	Class Class
	// Family is the key space of the pointer that the function gives or takes.
	Family Family
	// Size is where the bytes asked for are; SizeNone for one that frees.
	Size SizeRule
	// Pointer is where the pointer or handle is that tells the allocation from others of its Family.
	Pointer PointerRule
	// Success and OutOfMemory are the results that mean "done" and "refused for want of memory".
	Success, OutOfMemory int32
}

// API is a driver interface.
type API uint8

const (
	APINone API = 0
	// APICUDA is NVIDIA's driver API, libcuda.
	APICUDA API = 1
)

// String is the value of the label `api`.
func (a API) String() string {
	if a == APICUDA {
		return "cuda"
	}
	return "unknown"
}

// Role is what a function does to the account of its process.
type Role uint8

const (
	RoleNone Role = 0
	// RoleAllocate gives memory; it takes effect when the call returns Success.
	RoleAllocate Role = 1
	// RoleFree takes memory back; it takes effect on entry and is put back if the call fails.
	RoleFree Role = 2
)

// Family is a key space of pointers: two allocations of different families may have the same pointer, and a function
// that frees looks its pointer up in its own family only.
type Family uint8

const (
	FamilyNone Family = 0
	// FamilyDevice is the address space of CUdeviceptr. cuMemFree_v2 takes what cuMemAllocAsync gave, and cuMemFreeAsync
	// what cuMemAlloc_v2 gave, so device, pitch, managed and pool memory share it.
	FamilyDevice Family = 1
	// FamilyArray are CUarray handles, FamilyMipmapped CUmipmappedArray handles. Both are addresses in the process, and
	// the array of a mipmap level may be the address of the mipmapped array itself.
	FamilyArray     Family = 2
	FamilyMipmapped Family = 3
	// FamilyVMM are CUmemGenericAllocationHandle values: small numbers or addresses, as the driver likes.
	FamilyVMM Family = 4
	// FamilyHost is pinned host memory that the driver allocated, FamilyRegistered the program's own that it pinned: the
	// same address may be in both.
	FamilyHost       Family = 5
	FamilyRegistered Family = 6
	// FamilyIPC are device addresses mapped from another process.
	FamilyIPC Family = 7
)

// Class is a kind of memory. There are at most 16 (CLASSES in agent/bpf/c/layout.h).
type Class uint8

const (
	ClassNone Class = 0
	// ClassDevice is memory on the device, held until it is freed.
	ClassDevice Class = 1
	// ClassManaged moves between host and device by page; what is asked for need not be resident.
	ClassManaged Class = 2
	// ClassVMM is physical memory behind a handle, mapped by the program.
	ClassVMM Class = 3
	// ClassPool is taken from a pool that the driver keeps: used, not reserved, and a free returns it to the pool.
	ClassPool Class = 4
	// ClassArray is memory on the device in a layout of the driver's own; the bytes are computed from the shape.
	ClassArray Class = 5
	// ClassPinned is host memory that the driver allocated for the device to reach.
	ClassPinned Class = 6
	// ClassRegistered is the program's own host memory, pinned.
	ClassRegistered Class = 7
	// ClassImported is memory that another process or API allocated: it counts as an object of zero bytes, since its
	// bytes count where they were allocated.
	ClassImported Class = 8
)

// Classes are all classes of memory, in the order of their numbers.
func Classes() []Class {
	return []Class{ClassDevice, ClassManaged, ClassVMM, ClassPool, ClassArray, ClassPinned, ClassRegistered, ClassImported}
}

// String is the value of the label `memory`.
func (c Class) String() string {
	switch c {
	case ClassDevice:
		return "device"
	case ClassManaged:
		return "managed"
	case ClassVMM:
		return "vmm"
	case ClassPool:
		return "pool"
	case ClassArray:
		return "array"
	case ClassPinned:
		return "pinned"
	case ClassRegistered:
		return "registered"
	case ClassImported:
		return "imported"
	}
	return "unknown"
}
