package agent

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/ledger"
	"github.com/vramprof/vramprof/agent/symbols"
	"github.com/vramprof/vramprof/agent/workload"
	"github.com/vramprof/vramprof/internal/cpython"
)

type (
	stackKey struct {
		account uint32
		id      bpf.StackID
	}
	codeKey struct {
		account        uint32
		code, identity uint64
	}
	// account is who a number of the kernel half's is.
	account struct {
		pid     uint32
		process *watched
		labels  map[string]string
	}
	// code is a Python code object, or why it is not known.
	code struct {
		symbol   *symbols.Code
		layout   cpython.Layout
		internal bool // no code of the program: the interpreter's own
		err      error
	}
)

// collect reads the kernel half's records until they are closed.
func (a *Agent) collect() {
	for {
		record, err := a.records.Read()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, ringbuf.ErrFlushed):
			a.flushed <- struct{}{}
			continue
		case err != nil:
			a.log.Warn("record of the kernel half not understood", "error", err)
			continue
		}
		a.inbox.Lock()
		a.pending = append(a.pending, record)
		a.askBarrier()
		a.inbox.Unlock()
	}
}

// take makes sense of a record, now that every mapping that was made before it is known.
func (a *Agent) take(record any) {
	switch r := record.(type) {
	case bpf.Process:
		a.newAccount(r)
	case bpf.Code:
		a.newCode(r)
	case bpf.Stack:
		a.stacks[stackKey{r.Account, r.ID}] = a.resolve(r)
	case bpf.Commit:
		a.ledger.Add(ledgerKey(r.Key), r.By.InUseBytes, r.By.InUseObjects, r.By.AllocBytes, r.By.AllocObjects)
	}
}

// newAccount remembers who a process is from its first call on, so that it has a name even if it is gone at the drain.
func (a *Agent) newAccount(r bpf.Process) {
	w := a.watched[r.PID]
	if w == nil {
		w = a.left[r.PID]
	}
	if w == nil {
		w = a.watchedOf(r.PID)
	}
	a.identify(r.PID, w)
	labels := w.labels
	if labels == nil {
		labels = workload.Identify(workload.Process{Comm: r.Comm}, a.options.Labels)
	}
	a.accounts[r.Account] = account{pid: r.PID, process: w, labels: labels}
}

func (a *Agent) newCode(r bpf.Code) {
	c := &code{err: errors.New("the interpreter is not known")}
	a.codes[codeKey{r.Account, r.Code, r.Identity}] = c
	of, ok := a.accounts[r.Account]
	if !ok || of.process.interpreter == nil {
		return
	}
	pieces := make([]cpython.Piece, 0, len(r.Pieces))
	for _, p := range r.Pieces {
		pieces = append(pieces, cpython.Piece{Address: p.Address, Data: p.Bytes})
	}
	c.layout = of.process.interpreter.Layout
	read, err := cpython.DecodeCode(pieces, c.layout, r.Code)
	if c.err = err; err == nil {
		c.symbol = symbolOf(read, c.layout)
		c.internal = cleanup(read)
		return
	}
	// a name or a line table too long for the record: it still is in the process, if the process is
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", of.pid))
	if err != nil {
		return
	}
	defer memory.Close()
	if read, err = cpython.ReadCode(memory, c.layout, r.Code); err == nil {
		c.symbol, c.err = symbolOf(read, c.layout), nil
	}
}

// cleanup tells the frame that the interpreter puts between a class and its __init__, to check what that returned, from 3.13
// on: its code object has one string for all names, the file's too (CPython 3.13, Python/specialize.c, _Py_InitCleanup).
func cleanup(c cpython.Code) bool {
	return c.Filename == "__init__" && c.Name == "__init__" && c.QualName == "__init__"
}

func symbolOf(c cpython.Code, l cpython.Layout) *symbols.Code {
	return &symbols.Code{
		MinorVersion: l.Minor, Filename: c.Filename, QualName: c.QualName, Name: c.Name, FirstLine: c.FirstLine, LineTable: c.LineTable,
	}
}

func ledgerKey(k bpf.CounterKey) ledger.Key {
	return ledger.Key{Account: k.Account, Stack: [2]uint64{k.Stack.Hi, k.Stack.Lo}, Class: k.Class, API: k.API}
}
