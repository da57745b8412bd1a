package fakegpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Call is one call of a driver function, as the library noted it. Calls of one process are in the order in which they
// took effect.
type Call struct {
	// Time is when the call took effect, in nanoseconds of CLOCK_BOOTTIME.
	Time int64 `json:"time"`
	// PID and TID are as the process itself sees them.
	PID int `json:"pid"`
	TID int `json:"tid"`
	// Function is the exported symbol that was called.
	Function string `json:"function"`
	// Arguments are those in registers; Text is one that is no number: the name given to cuGetProcAddress, or the handle
	// that was passed by value.
	Arguments []uint64 `json:"arguments"`
	Text      string   `json:"text,omitempty"`
	// Result is the CUresult: 0 success, 2 out of memory.
	Result int `json:"result"`
	// Class is the kind of memory that was asked for, empty for a call that asks for none; Size its bytes, 0 for imported
	// memory. Both are there if the call failed too.
	Class string `json:"class,omitempty"`
	Size  uint64 `json:"size,omitempty"`
	// Pointer is the pointer or handle that the call gave.
	Pointer uint64 `json:"pointer,omitempty"`
	// Freed is the memory that ended with this call, by class: at a free, the last unmapping, the end of a context.
	Freed map[string]Amount `json:"freed,omitempty"`
}

// Amount is a number of allocations and their bytes.
type Amount struct {
	Bytes   uint64 `json:"bytes"`
	Objects uint64 `json:"objects"`
}

// ReadLedger reads the calls that the library has noted so far in the file. A last line without its end is an error, as
// is one that is not the library's: the library writes lines whole.
func ReadLedger(path string) ([]Call, error) {
	return readLines[Call](path, "ledger")
}

func readLines[T any](path, what string) ([]T, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if len(content) > 0 && content[len(content)-1] != '\n' {
		return nil, fmt.Errorf("read %s %s: its last line has no end", what, path)
	}
	var all []T
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one T
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("read %s %s: line %d: %w", what, path, len(all)+1, err)
		}
		all = append(all, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s %s: after line %d: %w", what, path, len(all), err)
	}
	return all, nil
}
