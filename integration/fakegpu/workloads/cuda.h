/* What the workloads use of the CUDA driver API, declared here so that no toolkit is needed. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUarray_st *CUarray;
typedef struct CUstream_st *CUstream;
typedef struct { size_t Width, Height; unsigned Format, NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct {
	int type, requestedHandleTypes;
	struct { int type, id; } location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(CUcontext *, int);
int cuCtxSetCurrent(CUcontext);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
int cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
int cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
int cuMemFree_v2(CUdeviceptr);
int cuMemFreeAsync(CUdeviceptr, CUstream);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemFreeHost(void *);
int cuMemCreate(CUdeviceptr *, size_t, const CUmemAllocationProp *, unsigned long long);
int cuMemRelease(CUdeviceptr);
int cuArrayCreate_v2(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
int cuArrayDestroy(CUarray);
#ifdef __cplusplus
}
#endif
