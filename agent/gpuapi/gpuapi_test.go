package gpuapi

import (
	"strings"
	"testing"
)

func TestCUDARows(t *testing.T) {
	seen := map[string]bool{}
	freed := map[Family]bool{}
	for _, f := range CUDA() {
		if f.Role == RoleFree {
			freed[f.Family] = true
		}
	}
	for i, f := range CUDA() {
		if seen[f.Symbol] {
			t.Errorf("row %d: %s is there twice", i, f.Symbol)
		}
		seen[f.Symbol] = true
		if f.API != APICUDA || f.Success != 0 || f.OutOfMemory != 2 || f.Family == FamilyNone {
			t.Errorf("%s: %+v", f.Symbol, f)
		}
		if f.Pointer.Arg < 1 || f.Pointer.Arg > 6 || f.Size.Arg > 6 || f.Size.Arg2 > 6 {
			t.Errorf("%s: an argument is not in a register: %+v", f.Symbol, f)
		}
		switch f.Role {
		case RoleAllocate:
			if f.Class == ClassNone || f.Class.String() == "unknown" || !freed[f.Family] {
				t.Errorf("%s: no class, or nothing frees its family: %+v", f.Symbol, f)
			}
			if (f.Size.Kind == SizeNone) != (f.Class == ClassImported) {
				t.Errorf("%s: memory without a size that is not imported, or the reverse: %+v", f.Symbol, f)
			}
		case RoleFree:
			if f.Class != ClassNone || f.Size != (SizeRule{}) || (f.Pointer.Kind != PointerArgument && f.Pointer.Kind != PointerArgument32) {
				t.Errorf("%s: %+v", f.Symbol, f)
			}
		default:
			t.Errorf("%s: role %d", f.Symbol, f.Role)
		}
		// Every per-thread-stream variant is the same function with another default stream.
		if base, ok := strings.CutSuffix(f.Symbol, "_ptsz"); ok {
			plain := CUDA()[i-1]
			variant := f
			variant.Symbol = base
			if plain != variant {
				t.Errorf("%s differs from %s", f.Symbol, base)
			}
		}
	}
}

func TestClassesAreLabels(t *testing.T) {
	labels := map[string]bool{}
	for i, c := range Classes() {
		if int(c) != i+1 {
			t.Errorf("class %d has number %d", i, c)
		}
		if labels[c.String()] {
			t.Errorf("two classes are called %s", c)
		}
		labels[c.String()] = true
	}
	if len(labels) > 15 {
		t.Errorf("%d classes, more than CLASSES in agent/bpf/c/layout.h", len(labels))
	}
}

func TestDriverLibrary(t *testing.T) {
	for name, want := range map[string]bool{
		"libcuda.so": true, "libcuda.so.1": true, "libcuda.so.550.163.01": true, "libcuda.so.1.1": true,
		"libcudart.so.12": false, "libcuda.so.": false, "libcuda.so.1.": false, "libcuda.so.x": false, "libcuda.so1": false,
		"libcudadebugger.so.1": false, "libcuda.so.1.bak": false, "libcuda": false, "": false, "libcuda.so..1": false,
	} {
		api, got := DriverLibrary(name)
		if got != want || (api == APICUDA) != want {
			t.Errorf("%q: %v, %v", name, api, got)
		}
	}
}

func TestLooksLikeAllocator(t *testing.T) {
	for name, want := range map[string]bool{
		"cuMemAllocNew_v9": true, "cuMemHostAlloc_v2": true, "cuMemCreate_v2": true, "cuArrayCreate": true,
		"cuArray3DCreate": true, "cuMipmappedArrayCreate_v2": true, "cuGraphAddMemAllocNode": true, "cuMemAllocAsync_v2_ptsz": true,
		"cuMemAlloc_v2": false, "cuMemCreate": false, "cuMemFree_v2": false, "cuStreamCreate": false, "cuTexObjectCreate": false,
		"cuMemGetAllocationGranularity": false, "cuMemRetainAllocationHandle": false, "cuMemPoolCreate": false,
		"cudaMalloc": false, "malloc": false, "cuMemcpy": false, "cuCtxCreate_v2": false, "": false,
	} {
		if got := LooksLikeAllocator(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
