package bpf

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// Call is one function of a driver: agent/gpuapi's row in the numbers that the programs know. The probe's cookie is its
// index in Options.Calls.
type Call struct {
	Role, Class, Family, API uint8
	SizeKind, SizeArg, Size2 uint8
	PointerKind, PointerArg  uint8
	Success, OutOfMemory     int32
}

// Options are fixed while the programs are loaded.
type Options struct {
	// Calls is the table of driver functions.
	Calls []Call
	// Multi loads the programs for uprobe_multi links rather than for probes by perf events.
	Multi bool
	// OnlyBelow, if not 0, is the process whose descendants alone are profiled.
	OnlyBelow uint32
	// MaxCounters, MaxLive and MaxProcesses bound the maps; 0 means 262,144 pairs of stack and process (about 200 bytes
	// each while in use), 1,048,576 live allocations (about 130 bytes) and 16,384 processes (about 2 KiB).
	MaxCounters, MaxLive, MaxProcesses uint32
	// NoReuse walks every stack afresh. CheckReuse recognises stacks and walks them all the same, and counts those for
	// which the two differ, as "reused wrong". Both are for measuring.
	NoReuse, CheckReuse bool
}

// Kernel is the loaded kernel half. Its methods may be called from several goroutines.
type Kernel struct {
	objects vramprofObjects

	mu         sync.Mutex
	generation uint32
	spaces     slots
	tables     slots
	images     map[uint32]uint32 // process → slot of its space
	deletions  sync.WaitGroup
}

// Load loads the programs and maps. Close releases them; nothing is pinned, so they also go with the process.
func Load(o Options) (*Kernel, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory (needed before kernel 5.11; grant CAP_SYS_RESOURCE): %w", err)
	}
	spec, err := loadVramprof()
	if err != nil {
		return nil, fmt.Errorf("read the embedded programs: %w", err)
	}
	if uint32(len(o.Calls)) > spec.Maps["rows"].MaxEntries {
		return nil, fmt.Errorf("%d driver functions, and room for %d: raise rows in c/state.h", len(o.Calls), spec.Maps["rows"].MaxEntries)
	}
	for name, n := range map[string]uint32{"counters": o.MaxCounters, "stacks": o.MaxCounters, "lives": o.MaxLive, "processes": o.MaxProcesses, "accounts": o.MaxProcesses, "images": o.MaxProcesses} {
		if n != 0 {
			spec.Maps[name].MaxEntries = n
		}
	}
	if !o.Multi {
		for _, p := range spec.Programs {
			p.AttachType = ebpf.AttachNone
		}
	}
	set := func(name string, value uint32) {
		if err == nil {
			err = spec.Variables[name].Set(value)
		}
	}
	set("only_below", o.OnlyBelow)
	set("reuse", number(!o.NoReuse))
	set("check_reuse", number(o.CheckReuse))
	if err != nil {
		return nil, fmt.Errorf("set options: %w", err)
	}
	k := &Kernel{images: map[uint32]uint32{}}
	if err := spec.LoadAndAssign(&k.objects, nil); err != nil {
		return nil, loadError(err)
	}
	for i, c := range o.Calls {
		row := vramprofCallRow{
			Role: c.Role, Class: c.Class, Family: c.Family, Api: c.API,
			SizeKind: c.SizeKind, SizeArg: c.SizeArg, SizeArg2: c.Size2,
			PointerKind: c.PointerKind, PointerArg: c.PointerArg,
			Success: c.Success, OutOfMemory: c.OutOfMemory,
		}
		if err := k.objects.Rows.Put(uint32(i), &row); err != nil {
			k.Close()
			return nil, fmt.Errorf("write driver function %d: %w", i, err)
		}
	}
	if err := k.objects.Accounts.Put(uint32(OverflowAccount), &vramprofAccount{}); err != nil {
		k.Close()
		return nil, fmt.Errorf("make the overflow account: %w", err)
	}
	k.spaces.max = k.objects.Spaces.MaxEntries()
	k.tables.max = k.objects.RowTables.MaxEntries()
	return k, nil
}

// Close unloads programs and maps. Probes that still use the programs keep them alive until they are closed too.
func (k *Kernel) Close() error {
	k.deletions.Wait()
	return k.objects.Close()
}

// Allocate gives the programs for the entry and the return of an allocating function.
func (k *Kernel) Allocate() (entry, ret *ebpf.Program) {
	return k.objects.AllocateEntry, k.objects.AllocateReturn
}

// Free gives the programs for the entry and the return of a freeing function.
func (k *Kernel) Free() (entry, ret *ebpf.Program) { return k.objects.FreeEntry, k.objects.FreeReturn }

func loadError(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("load programs: this kernel lacks something they need (5.17 with BTF is the oldest): %w", err)
	case errors.As(err, &verifier) && strings.Contains(verifier.Error(), "permission denied") && len(verifier.Log) == 0:
		return fmt.Errorf("load programs: run as root, or grant CAP_BPF and CAP_PERFMON: %w", err)
	}
	return fmt.Errorf("load programs: %w", err)
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
