package bpf

import "unsafe"

// Sizes of what c/layout.h lays out in arrays.
const (
	mappingSize     = int(unsafe.Sizeof(vramprofMapping{}))
	nativeFrameSize = int(unsafe.Sizeof(vramprofNativeFrame{}))
	pythonFrameSize = int(unsafe.Sizeof(vramprofPythonFrame{}))
	codeString      = unsafe.Sizeof(vramprofCodeRecord{}.Strings[0])
)

// Stop says why a walk ended.
type Stop uint32

// The reasons. Python has the last two besides Complete and Depth.
const (
	Complete     = Stop(vramprofStopSTOP_COMPLETE)   // the outermost frame was reached
	Depth        = Stop(vramprofStopSTOP_DEPTH)      // more frames than are kept
	NoMapping    = Stop(vramprofStopSTOP_NO_MAPPING) // an address outside every executable mapping
	NoRows       = Stop(vramprofStopSTOP_NO_ROWS)    // a file whose unwind rows are not loaded
	Unreadable   = Stop(vramprofStopSTOP_UNREADABLE) // memory that could not be read
	BadRow       = Stop(vramprofStopSTOP_BAD_ROW)    // a place that its rows cannot describe
	BadCFA       = Stop(vramprofStopSTOP_BAD_CFA)    // a frame that would not be above the one before
	NoImage      = Stop(vramprofStopSTOP_NO_IMAGE)   // a process that was not known yet
	PythonLayout = Stop(vramprofStopSTOP_LAYOUT)     // a Python frame or thread state that could not be read
	NoPython     = Stop(vramprofStopSTOP_NONE)       // no Python in this process or thread
)

// String gives the reason as a metric label and in a [truncated: ...] frame.
func (s Stop) String() string {
	switch s {
	case Complete:
		return "complete"
	case Depth:
		return "depth"
	case NoMapping:
		return "no mapping"
	case NoRows:
		return "no unwind rows"
	case Unreadable:
		return "unreadable memory"
	case BadRow:
		return "unsupported unwind rule"
	case BadCFA:
		return "bad CFA"
	case NoImage:
		return "process not known yet"
	case PythonLayout:
		return "unreadable Python frame"
	case NoPython:
		return "no Python"
	}
	return "unknown"
}
