// Package agent wires the stations that an allocation passes: it finds processes that use a GPU, attaches to their
// driver, and turns what the kernel half counts into one window of samples per interval.
//
// The stations, packages below this one, do not know each other; what one gives is handed on here. Five goroutines share
// the state: the kernel's events and what the kernel half is told of them (discover.go), its records as they come
// (collect.go) and as they are understood (barrier.go), and the loading of unwind rows (unwind.go). Drain (drain.go) closes
// an interval.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/vramprof/vramprof/agent/attach"
	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/agent/ledger"
	"github.com/vramprof/vramprof/agent/mappings"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/process"
	"github.com/vramprof/vramprof/agent/symbols"
)

// Options say what to profile and how.
type Options struct {
	Logger *slog.Logger
	// Symbols resolves frames; the agent hands it the objects that it asks for.
	Symbols *symbols.Client
	// Objects is where Symbols' source finds them.
	Objects *objects.Store
	// OnlyBelow, if not 0, is the process whose descendants alone are profiled.
	OnlyBelow uint32
	// Libraries are driver libraries to attach to before any process maps them.
	Libraries []string
	// Labels are added to every series; they give way to what a process says of itself.
	Labels map[string]string
	// MaxCounters, MaxLive and MaxProcesses are bpf.Options'.
	MaxCounters, MaxLive, MaxProcesses uint32
	// NoReuse walks every stack afresh, to measure what a walk costs.
	NoReuse bool
}

// Agent sees the allocations of this machine. New starts it, Close ends it.
type Agent struct {
	options    Options
	log        *slog.Logger
	mechanism  attach.Mechanism
	calls      []gpuapi.Function
	kernel     *bpf.Kernel
	records    *bpf.Records
	watcher    *mappings.Watcher
	cancel     context.CancelFunc
	running    sync.WaitGroup
	loads      chan uint32   // processes whose unwind rows are wanted
	flushed    chan struct{} // the records up to a Flush were read
	publishing chan struct{} // images are unpublished
	wake       chan struct{} // records are ready
	settled    chan struct{} // the ready records were taken

	drain sync.Mutex // one Drain at a time

	// The ring buffer is emptied without waiting for mu, which is held while files are read. mu is taken first, if both are.
	inbox   sync.Mutex
	pending []any // records that wait for a barrier, in their order
	ready   []any // records whose barrier has passed; older than the pending ones
	barrier barrier

	mu          sync.Mutex
	scanned     bool // the processes that were there at the start are known
	table       *process.Table
	watched     map[uint32]*watched
	attached    map[attach.Key]*attach.Attachment
	unpublished map[uint32]bool     // processes of which the kernel half is to be told
	left        map[uint32]*watched // of processes that ended or ran another program, for calls still on their way
	rows        map[*objects.Object]bpf.Rows
	ledger      *ledger.Ledger
	stacks      map[stackKey]*stack
	codes       map[codeKey]*code
	accounts    map[uint32]account
	health      Health
}

// Health counts what went wrong, by reason, since the start.
type Health struct {
	// Unattached are driver functions or files that carry no probe.
	Unattached map[string]uint64
	// Truncated are stacks that do not reach the outermost frame, by reason.
	Truncated map[string]uint64
	// Unreadable are files that could not be opened or parsed, by reason.
	Unreadable map[string]uint64
	// EventsLost is how often the kernel's events were lost and the machine was scanned again.
	EventsLost uint64
	// StacksLost are samples whose stack never came.
	StacksLost uint64
}

// New loads the kernel half, attaches to the driver libraries that processes map now, and from then on to those that are
// mapped later. It needs root, or the capabilities that its error names.
func New(ctx context.Context, o Options) (*Agent, error) {
	mechanism, err := attach.Detect()
	if err == nil {
		err = attach.Preflight(mechanism)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; run as root, or grant what is missing", err)
	}
	a := &Agent{
		options: o, log: o.Logger, mechanism: mechanism, calls: gpuapi.CUDA(),
		loads: make(chan uint32, 1024), flushed: make(chan struct{}, 1), publishing: make(chan struct{}, 1), wake: make(chan struct{}, 1), settled: make(chan struct{}, 1),
		table: process.NewTable(), watched: map[uint32]*watched{}, left: map[uint32]*watched{}, unpublished: map[uint32]bool{}, attached: map[attach.Key]*attach.Attachment{},
		rows: map[*objects.Object]bpf.Rows{}, ledger: ledger.New(), stacks: map[stackKey]*stack{}, codes: map[codeKey]*code{},
		accounts: map[uint32]account{},
		health:   Health{Unattached: map[string]uint64{}, Truncated: map[string]uint64{}, Unreadable: map[string]uint64{}},
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Agent) start(ctx context.Context) error {
	var err error
	a.kernel, err = bpf.Load(bpf.Options{
		Calls: callsOf(a.calls), Multi: a.mechanism == attach.UprobeMulti, OnlyBelow: a.options.OnlyBelow,
		MaxCounters: a.options.MaxCounters, MaxLive: a.options.MaxLive, MaxProcesses: a.options.MaxProcesses, NoReuse: a.options.NoReuse,
	})
	if err != nil {
		return err
	}
	if a.records, err = a.kernel.Records(); err != nil {
		return err
	}
	for _, name := range a.options.Libraries {
		if err := a.attachFile(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			a.log.Warn("driver library not attached", "file", name, "error", err)
		}
	}
	if a.watcher, err = mappings.Open(mappings.Options{}); err != nil {
		return err
	}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.running.Add(5)
	go func() { defer a.running.Done(); a.publishImages(ctx) }()
	go func() { defer a.running.Done(); a.takeReady(ctx) }()
	go func() { defer a.running.Done(); a.collect() }()
	go func() { defer a.running.Done(); a.loadRows(ctx) }()
	scanned := make(chan error, 1)
	go func() { defer a.running.Done(); a.watch(ctx, scanned) }()
	select {
	case err := <-scanned:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close detaches every probe and releases the kernel half. What was not drained is lost.
func (a *Agent) Close() error {
	if a.cancel != nil {
		a.cancel()
	}
	var errs []error
	a.mu.Lock()
	for _, t := range a.attached {
		errs = append(errs, t.Close())
	}
	a.attached = nil
	a.mu.Unlock()
	if a.records != nil {
		errs = append(errs, a.records.Close())
	}
	a.running.Wait()
	if a.watcher != nil {
		errs = append(errs, a.watcher.Close())
	}
	if a.kernel != nil {
		errs = append(errs, a.kernel.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the agent: %w", err)
	}
	return nil
}

// Health gives a copy of the counts, with the kernel half's own by name.
func (a *Agent) Health() (Health, map[string]uint64, error) {
	statistics, err := a.kernel.Statistics()
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.health
	h.Unattached, h.Truncated, h.Unreadable = copied(h.Unattached), copied(h.Truncated), copied(h.Unreadable)
	return h, statistics, err
}

func copied(m map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// callsOf puts the table's rows into the kernel half's numbers, which are the same.
func callsOf(functions []gpuapi.Function) []bpf.Call {
	calls := make([]bpf.Call, 0, len(functions))
	for _, f := range functions {
		calls = append(calls, bpf.Call{
			Role: uint8(f.Role), Class: uint8(f.Class), Family: uint8(f.Family), API: uint8(f.API),
			SizeKind: uint8(f.Size.Kind), SizeArg: f.Size.Arg, Size2: f.Size.Arg2,
			PointerKind: uint8(f.Pointer.Kind), PointerArg: f.Pointer.Arg,
			Success: f.Success, OutOfMemory: f.OutOfMemory,
		})
	}
	return calls
}
