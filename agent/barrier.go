package agent

import (
	"context"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A record's addresses mean what was mapped when it was made, and the mappings come by another way than the records. So
// records wait for a barrier: an executable page that this process maps, which the kernel reports like any other. When the
// report comes, everything that was mapped before the barrier was asked for has been reported too.

// barrier is the page whose report is awaited.
type barrier struct {
	page    []byte
	covered int // so many of the pending records came before it
}

// barrierTimeout is for a report that was lost, or a system that refuses executable pages: stacks are then looked up in
// what is known.
const barrierTimeout = 2 * time.Second

// askBarrier asks for a barrier for the records that are pending, unless one is under way already. inbox is locked.
func (a *Agent) askBarrier() {
	if a.barrier.page != nil || len(a.pending) == 0 {
		return
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return // Drain takes them in the end
	}
	a.barrier = barrier{page: page, covered: len(a.pending)}
}

// passed tells whether a new mapping of this process is the barrier, and if so lets the records before it be taken.
func (a *Agent) passed(start uint64) bool {
	a.inbox.Lock()
	if a.barrier.page == nil || start != uint64(uintptr(unsafe.Pointer(unsafe.SliceData(a.barrier.page)))) {
		a.inbox.Unlock()
		return false
	}
	a.ready = append(a.ready, a.pending[:a.barrier.covered]...)
	a.pending = a.pending[a.barrier.covered:]
	a.endBarrier()
	a.askBarrier()
	a.inbox.Unlock()
	a.signal(a.wake)
	return true
}

// takeReady takes the records whose barrier has passed, until ctx ends. It gives way to events between any two.
func (a *Agent) takeReady(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.takeOne() {
		}
		a.signal(a.settled)
	}
}

func (a *Agent) takeOne() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inbox.Lock()
	if len(a.ready) == 0 {
		a.inbox.Unlock()
		return false
	}
	r := a.ready[0]
	a.ready = a.ready[1:]
	a.inbox.Unlock()
	a.take(r)
	return true
}

// signal wakes whoever waits on a channel of one place.
func (a *Agent) signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *Agent) endBarrier() {
	if a.barrier.page == nil {
		return
	}
	if err := unix.Munmap(a.barrier.page); err != nil {
		a.log.Warn("unmap the barrier's page", "error", err)
	}
	a.barrier = barrier{}
}

// settle waits until every stack that a counter can name by now has been looked up.
func (a *Agent) settle() error {
	if err := a.records.Flush(); err != nil {
		return fmt.Errorf("flush the kernel half's records: %w", err)
	}
	timeout := time.NewTimer(barrierTimeout)
	defer timeout.Stop()
	select {
	case <-a.flushed:
	case <-timeout.C:
		a.log.Warn("the kernel half's records are read slowly: some stacks of this interval may be missing")
	}
	for {
		a.mu.Lock() // while a record is being taken, it is locked
		a.inbox.Lock()
		left := len(a.pending) + len(a.ready)
		a.inbox.Unlock()
		a.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-a.settled:
		case <-timeout.C:
			a.takeAll()
			return nil
		}
	}
}

// takeAll takes the pending records without a barrier.
func (a *Agent) takeAll() {
	a.inbox.Lock()
	a.ready = append(a.ready, a.pending...)
	a.pending = nil
	a.endBarrier()
	a.inbox.Unlock()
	for a.takeOne() {
	}
}
