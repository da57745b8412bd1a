package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// Mechanism is how the kernel is asked for uprobes. A program is loaded for one of them and cannot be attached by the other.
type Mechanism int

const (
	// UprobeMulti attaches one program to many sites with one link (Linux 6.6). It needs CAP_BPF and CAP_PERFMON.
	UprobeMulti Mechanism = iota
	// PerfEvent opens a perf event and a link per site (cookies need Linux 5.15). It needs CAP_SYS_ADMIN on kernels with the
	// fix for CVE-2025-38466.
	PerfEvent
)

func (m Mechanism) String() string {
	if m == UprobeMulti {
		return "uprobe_multi"
	}
	return "perf_event"
}

// AttachType is the attach type that a program has to be loaded with.
func (m Mechanism) AttachType() ebpf.AttachType {
	if m == UprobeMulti {
		return ebpf.AttachTraceUprobeMulti
	}
	return ebpf.AttachNone
}

// Detect tries the kernel once for uprobe_multi and says PerfEvent where the kernel has none. An error means that it could
// not be tried, for lack of a capability.
func Detect() (Mechanism, error) {
	err := features.HaveBPFLinkUprobeMulti()
	switch {
	case err == nil:
		return UprobeMulti, nil
	case errors.Is(err, ebpf.ErrNotSupported):
		return PerfEvent, nil
	}
	return UprobeMulti, fmt.Errorf("detect uprobe_multi: %w", explain(err, UprobeMulti.capabilities()...))
}
