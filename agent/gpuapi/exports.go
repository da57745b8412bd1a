package gpuapi

import "strings"

// DriverLibrary tells the driver whose functions a file of this base name exports: libcuda.so, libcuda.so.1,
// libcuda.so.550.163.01. The name only finds candidates; what counts is which functions of the table the file exports.
func DriverLibrary(basename string) (API, bool) {
	version, ok := strings.CutPrefix(basename, "libcuda.so")
	if !ok {
		return APINone, false
	}
	for version != "" {
		digits := strings.TrimLeft(version[1:], "0123456789")
		if version[0] != '.' || len(digits) == len(version)-1 {
			return APINone, false
		}
		version = digits
	}
	return APICUDA, true
}

// LooksLikeAllocator tells whether an exported function that the table lacks may allocate memory, going by its name, so
// that a driver newer than the table is noticed. Names known not to allocate are left out; cuGraphAddMemAllocNode and the
// v1 array functions are not, since what they give goes uncounted.
func LooksLikeAllocator(symbol string) bool {
	name, ok := strings.CutPrefix(symbol, "cu")
	if !ok || harmless(strings.TrimSuffix(name, "_ptsz")) {
		return false
	}
	for _, f := range CUDA() {
		if f.Symbol == symbol {
			return false
		}
	}
	if _, rest, found := strings.Cut(name, "Mem"); found && strings.Contains(rest, "Alloc") {
		return true
	}
	create := strings.Index(name, "Create")
	return create >= 0 && (strings.Contains(name[:create], "Mem") || strings.Contains(name[:create], "Array"))
}

// harmless are functions that a pattern above matches and that take no memory themselves (cuda.h).
func harmless(name string) bool {
	switch name {
	case "MemGetAllocationGranularity", "MemGetAllocationPropertiesFromHandle", "MemRetainAllocationHandle",
		"MemPoolCreate", "GraphMemAllocNodeGetParams":
		return true
	}
	return false
}
