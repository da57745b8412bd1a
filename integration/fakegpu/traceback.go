package fakegpu

import (
	"encoding/json"
	"fmt"
)

// Traceback is the Python stack that the training workload wrote for itself just before a call to the driver. The n-th
// of a thread belongs to the thread's n-th allocating call in the ledger.
type Traceback struct {
	PID      int    `json:"pid"`
	TID      int    `json:"tid"`
	Function string `json:"function"`
	Size     uint64 `json:"size"`
	// Frames are innermost first; the line of each is the one that it was at.
	Frames []PythonFrame `json:"frames"`
}

// PythonFrame is a frame as Python itself names it. Name is the qualified name from 3.11 on and the bare name before,
// since code objects know no other.
type PythonFrame struct {
	Name, File string
	Line       int
}

// UnmarshalJSON reads the form [name, file, line].
func (f *PythonFrame) UnmarshalJSON(text []byte) error {
	var fields []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("frame [name, file, line]: %w", err)
	}
	if len(fields) != 3 {
		return fmt.Errorf("frame of %d fields, want [name, file, line]", len(fields))
	}
	for i, into := range []any{&f.Name, &f.File, &f.Line} {
		if err := json.Unmarshal(fields[i], into); err != nil {
			return fmt.Errorf("frame [name, file, line]: %w", err)
		}
	}
	return nil
}

// ReadTracebacks reads the file that the environment variable FAKEGPU_TRACEBACKS names to the training workload.
func ReadTracebacks(path string) ([]Traceback, error) {
	return readLines[Traceback](path, "tracebacks")
}

// NativeStack is the native stack that the chain workload's innermost function found with glibc's unwinder just before a
// call to the driver.
type NativeStack struct {
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	Size uint64 `json:"size"`
	// Frames are innermost first, from the function that calls the driver to where the thread began.
	Frames []NativeFrame `json:"frames"`
}

// NativeFrame is a return address: the base name of its file and the offset from where the file's first byte is mapped,
// which is the ELF address for a file that is linked to base 0. That of the innermost frame is of another call in the
// same function.
type NativeFrame struct {
	Object string `json:"object"`
	Offset uint64 `json:"offset"`
	// Name is the function, mangled as in the symbol table, where the dynamic symbol table has it.
	Name string `json:"name,omitempty"`
}

// ReadNativeStacks reads the file that the environment variable FAKEGPU_TRACEBACKS names to the chain workload.
func ReadNativeStacks(path string) ([]NativeStack, error) {
	return readLines[NativeStack](path, "native stacks")
}
