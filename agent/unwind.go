package agent

import (
	"context"
	"path"
	"sync"
	"sync/atomic"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/process"
	"github.com/vramprof/vramprof/internal/ehframe"
)

// wantRows asks for the unwind rows of what a process maps. A process that finds the queue full is asked for again with
// its next mapping; until then user space finishes its stacks.
func (a *Agent) wantRows(pid uint32) {
	select {
	case a.loads <- pid:
	default:
	}
}

// loadRows loads unwind rows into the kernel, one process at a time, until ctx ends.
func (a *Agent) loadRows(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case pid := <-a.loads:
			a.loadProcess(ctx, pid)
		}
	}
}

func (a *Agent) loadProcess(ctx context.Context, pid uint32) {
	a.mu.Lock()
	p := a.table.Get(pid)
	if p == nil {
		a.mu.Unlock()
		return
	}
	mapped := p.Now().Mappings
	a.mu.Unlock()
	// the kernel takes its time for each, and for all at once no longer
	var all sync.WaitGroup
	var changed atomic.Bool
	for _, m := range mapped {
		all.Go(func() {
			if ctx.Err() == nil && a.loadMapping(pid, m) {
				changed.Store(true)
			}
		})
	}
	all.Wait()
	if !changed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table.Each(func(p *process.Process) {
		if w := a.watched[p.PID]; w != nil && w.gpu {
			a.publish(p.PID)
		}
	})
}

// loadMapping loads the rows of one file. Parsing, which takes milliseconds, is done without the lock.
func (a *Agent) loadMapping(pid uint32, m process.Mapping) bool {
	a.mu.Lock()
	o, err := a.object(pid, m)
	if o == nil || err != nil {
		a.mu.Unlock()
		return false
	}
	_, loaded := a.rows[o]
	a.mu.Unlock()
	if loaded {
		return false
	}
	var rows bpf.Rows
	table, err := o.Rows()
	if err == nil {
		rows, err = a.kernel.LoadRows(table.Rows)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.unreadable(a.watched[pid], m.Path, err)
	}
	a.rows[o] = rows
	return true
}

// finish continues a native walk that the kernel half had to leave, over the copy of the stack that it made.
func (a *Agent) finish(s bpf.Stack, program *process.Program) ([]bpf.NativeFrame, string) {
	frames := s.Native
	memory := make(ehframe.Pieces, 0, len(s.Copy))
	for _, p := range s.Copy {
		memory = append(memory, ehframe.Piece{Address: p.Address, Data: p.Bytes})
	}
	find := func(address uint64) (*ehframe.Table, uint64, bool) {
		m, ok := program.Find(address)
		if !ok {
			return nil, 0, false
		}
		o, err := a.object(s.PID, m)
		if o == nil || err != nil {
			return nil, 0, true
		}
		bias, ok := o.LoadBias(m.Start, m.Offset)
		if !ok {
			return nil, 0, true
		}
		table, err := o.Rows()
		if err != nil {
			return nil, 0, true
		}
		return table, bias, true
	}
	regs := ehframe.Regs{PC: s.PC, SP: s.SP, BP: s.BP}
	rest, stop := ehframe.Unwind(regs, s.ReturnAddress, len(frames) == 0, memory, find)
	if n := len(frames); n > 0 && len(rest) > 0 && frames[n-1].PC == s.PC {
		frames = frames[:n-1] // the frame whose caller was not found is the first of the rest
	}
	for _, f := range rest {
		frames = append(frames, bpf.NativeFrame{PC: f.PC, CFA: f.CFA, Return: f.Return})
	}
	if stop == ehframe.Complete {
		return frames, ""
	}
	return frames, a.where(stop.String(), frames, program)
}

// where adds the file at which a walk ended to the reason why.
func (a *Agent) where(reason string, frames []bpf.NativeFrame, program *process.Program) string {
	if len(frames) == 0 {
		return reason
	}
	last := frames[len(frames)-1]
	if m, ok := program.Find(last.PC); ok && m.Path != "" {
		return reason + " in " + path.Base(m.Path)
	}
	return reason
}
