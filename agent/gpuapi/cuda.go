package gpuapi

// CUDA gives the functions of libcuda that allocate and free, in an order that is the row number which the kernel half is
// told. The comment of a row is the function's signature and the CUDA version that brought it (cudaTypedefs.h).
//
// Not here, and why: cuMemAddressReserve and cuMemMap give addresses, not memory; cuMemImportFromShareableHandle and
// cuMemRetainAllocationHandle may give a handle that the process already holds, so they are references, not allocations;
// memory of graph nodes is taken at launch; the v1 array functions are from before CUDA 3.2.
func CUDA() []Function {
	const (
		success     = 0 // CUDA_SUCCESS
		outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
	)
	allocate := func(symbol string, c Class, f Family, s SizeRule, p PointerRule) Function {
		return Function{symbol, APICUDA, RoleAllocate, c, f, s, p, success, outOfMemory}
	}
	free := func(symbol string, f Family, p PointerRule) Function {
		return Function{symbol, APICUDA, RoleFree, ClassNone, f, SizeRule{}, p, success, outOfMemory}
	}
	var (
		size2  = SizeRule{Kind: SizeArgument, Arg: 2}
		none   = SizeRule{Kind: SizeNone}
		out1   = PointerRule{PointerOut, 1}
		first  = PointerRule{PointerArgument, 1}
		out32  = PointerRule{PointerOut32, 1}
		size32 = SizeRule{Kind: SizeArgument32, Arg: 2}
	)
	return []Function{
		// (CUdeviceptr *dptr, size_t bytesize), 3.2
		allocate("cuMemAlloc_v2", ClassDevice, FamilyDevice, size2, out1),
		// (CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned ElementSizeBytes), 3.2
		allocate("cuMemAllocPitch_v2", ClassDevice, FamilyDevice, SizeRule{SizePitch, 2, 4}, out1),
		// (CUdeviceptr *dptr, size_t bytesize, unsigned flags), 6.0
		allocate("cuMemAllocManaged", ClassManaged, FamilyDevice, size2, out1),
		// (CUdeviceptr *dptr, size_t bytesize, CUstream hStream), 11.2
		allocate("cuMemAllocAsync", ClassPool, FamilyDevice, size2, out1),
		allocate("cuMemAllocAsync_ptsz", ClassPool, FamilyDevice, size2, out1),
		// (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream), 11.2
		allocate("cuMemAllocFromPoolAsync", ClassPool, FamilyDevice, size2, out1),
		allocate("cuMemAllocFromPoolAsync_ptsz", ClassPool, FamilyDevice, size2, out1),
		// (CUdeviceptr dptr), 3.2
		free("cuMemFree_v2", FamilyDevice, first),
		// (CUdeviceptr dptr, CUstream hStream), 11.2
		free("cuMemFreeAsync", FamilyDevice, first),
		free("cuMemFreeAsync_ptsz", FamilyDevice, first),

		// (CUdeviceptr_v1 *dptr, unsigned bytesize), 2.0: pointers and sizes of 32 bits
		allocate("cuMemAlloc", ClassDevice, FamilyDevice, size32, out32),
		// (CUdeviceptr_v1 *dptr, unsigned *pPitch, unsigned WidthInBytes, unsigned Height, unsigned ElementSizeBytes), 2.0
		allocate("cuMemAllocPitch", ClassDevice, FamilyDevice, SizeRule{SizePitch32, 2, 4}, out32),
		// (CUdeviceptr_v1 dptr), 2.0
		free("cuMemFree", FamilyDevice, PointerRule{PointerArgument32, 1}),

		// (CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray), 3.2
		allocate("cuArrayCreate_v2", ClassArray, FamilyArray, SizeRule{Kind: SizeArray, Arg: 2}, out1),
		// (CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray), 3.2
		allocate("cuArray3DCreate_v2", ClassArray, FamilyArray, SizeRule{Kind: SizeArray3D, Arg: 2}, out1),
		// (CUarray hArray), 2.0
		free("cuArrayDestroy", FamilyArray, first),
		// (CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, unsigned numMipmapLevels), 5.0
		allocate("cuMipmappedArrayCreate", ClassArray, FamilyMipmapped, SizeRule{SizeMipmapped, 2, 3}, out1),
		// (CUmipmappedArray hMipmappedArray), 5.0
		free("cuMipmappedArrayDestroy", FamilyMipmapped, first),

		// (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags), 10.2
		allocate("cuMemCreate", ClassVMM, FamilyVMM, size2, out1),
		// (CUmemGenericAllocationHandle handle), 10.2
		free("cuMemRelease", FamilyVMM, first),

		// (void **pp, size_t bytesize, unsigned Flags), 2.2
		allocate("cuMemHostAlloc", ClassPinned, FamilyHost, size2, out1),
		// (void **pp, size_t bytesize), 3.2
		allocate("cuMemAllocHost_v2", ClassPinned, FamilyHost, size2, out1),
		// (void **pp, unsigned bytesize), 2.0: the pointer has 64 bits all the same
		allocate("cuMemAllocHost", ClassPinned, FamilyHost, size32, out1),
		// (void *p), 2.0
		free("cuMemFreeHost", FamilyHost, first),
		// (void *p, size_t bytesize, unsigned Flags), 6.5 and 4.0: nothing is written
		allocate("cuMemHostRegister_v2", ClassRegistered, FamilyRegistered, size2, first),
		allocate("cuMemHostRegister", ClassRegistered, FamilyRegistered, size2, first),
		// (void *p), 4.0
		free("cuMemHostUnregister", FamilyRegistered, first),

		// (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags), 11.0 and 4.1: the handle is 64 bytes by value, on
		// the stack, so the second register is Flags and no size is anywhere
		allocate("cuIpcOpenMemHandle_v2", ClassImported, FamilyIPC, none, out1),
		allocate("cuIpcOpenMemHandle", ClassImported, FamilyIPC, none, out1),
		// (CUdeviceptr dptr), 4.1
		free("cuIpcCloseMemHandle", FamilyIPC, first),
		// (CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData), 11.2: freed as pool memory is
		allocate("cuMemPoolImportPointer", ClassImported, FamilyDevice, none, out1),
		// (CUdeviceptr *devPtr, CUexternalMemory extMem, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc), 10.0: freed by
		// cuMemFree_v2
		allocate("cuExternalMemoryGetMappedBuffer", ClassImported, FamilyDevice, none, out1),
		// (CUmipmappedArray *mipmap, CUexternalMemory extMem, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *), 10.0
		allocate("cuExternalMemoryGetMappedMipmappedArray", ClassImported, FamilyMipmapped, none, out1),
	}
}
