package profile

// Stack is one call stack and what its allocations did. Equal stacks are summed.
type Stack struct {
	// Frames begin with the innermost.
	Frames []Frame
	Values Values
}

// Frame is one place in a program.
type Frame struct {
	// Mapping is the file that the frame's code is of; the zero Mapping for a frame of Python and for a remark.
	Mapping Mapping
	// Address is the virtual address in the file's own numbering. It names a frame without lines, and is left out
	// otherwise, so that two calls on one line are one place.
	Address uint64
	// Lines are the functions at the place, the innermost inlined call first. A frame without any is named by its file and
	// address, as libcuda.so.1+0x1a2b, which is the same in every run of the same build.
	Lines []Line
}

// Mapping names a file by its path or base name and its build.
type Mapping struct {
	File string
	// BuildID is the GNU build ID in lower-case hexadecimal, with or without "gnu:" before it; empty if there is none.
	BuildID string
}

// Line is one function at a place. A remark, as "[truncated: no unwind rows]", has its text as Function and nothing else.
type Line struct {
	Function string
	// SystemName is the mangled name; empty where that is Function.
	SystemName string
	File       string
	// Line and StartLine, of the function, are 0 where unknown.
	Line, StartLine int64
}

// Values are what the allocations of a stack did, in bytes and in numbers of allocations.
type Values struct {
	AllocBytes, AllocObjects   int64 // in the interval
	FailedBytes, FailedObjects int64 // asked for in the interval and refused
	InUseBytes, InUseObjects   int64 // held at the end of the interval
	PeakBytes                  int64 // held when the process held most in the interval
}

func (v Values) add(w Values) Values {
	return Values{
		AllocBytes: v.AllocBytes + w.AllocBytes, AllocObjects: v.AllocObjects + w.AllocObjects,
		FailedBytes: v.FailedBytes + w.FailedBytes, FailedObjects: v.FailedObjects + w.FailedObjects,
		InUseBytes: v.InUseBytes + w.InUseBytes, InUseObjects: v.InUseObjects + w.InUseObjects,
		PeakBytes: v.PeakBytes + w.PeakBytes,
	}
}

// Group is a set of sample types that are of one kind and go to the server in one profile. The server sums whatever it is
// given, so gauges do not go with what is counted: they can be sent apart, or not at all.
type Group int

// The groups.
const (
	Alloc  Group = iota // gpu_alloc_bytes, gpu_alloc_objects: differences
	Failed              // gpu_failed_bytes, gpu_failed_objects: differences
	InUse               // gpu_inuse_bytes, gpu_inuse_objects: a gauge
	Peak                // gpu_peak_bytes: a gauge
)

// Groups lists all groups.
func Groups() []Group { return []Group{Alloc, Failed, InUse, Peak} }

func (g Group) String() string { return [...]string{"alloc", "failed", "inuse", "peak"}[g] }

type sampleType struct {
	name, unit string
	of         func(Values) int64
}

func (g Group) types() []sampleType {
	switch g {
	case Alloc:
		return []sampleType{
			{"gpu_alloc_bytes", "bytes", func(v Values) int64 { return v.AllocBytes }},
			{"gpu_alloc_objects", "count", func(v Values) int64 { return v.AllocObjects }},
		}
	case Failed:
		return []sampleType{
			{"gpu_failed_bytes", "bytes", func(v Values) int64 { return v.FailedBytes }},
			{"gpu_failed_objects", "count", func(v Values) int64 { return v.FailedObjects }},
		}
	case InUse:
		return []sampleType{
			{"gpu_inuse_bytes", "bytes", func(v Values) int64 { return v.InUseBytes }},
			{"gpu_inuse_objects", "count", func(v Values) int64 { return v.InUseObjects }},
		}
	case Peak:
		return []sampleType{{"gpu_peak_bytes", "bytes", func(v Values) int64 { return v.PeakBytes }}}
	}
	return nil
}
