// Package process keeps which files every process of the machine has mapped executable, from what the kernel reports, so
// that an address that a thread was at can be told as a place in a file even when the process is gone.
//
// It is a pure state machine: it reads nothing and opens nothing. A process that execs becomes another program; what it
// was before is kept for a while, for stacks that are still on their way.
package process

import (
	"slices"
	"time"
)

// File tells one mapped file from another: by build ID where it has one, else by the file system's identity of it.
type File struct {
	BuildID    string // raw bytes
	Dev, Inode uint64
}

// Mapping is one executable mapping.
type Mapping struct {
	Start, End uint64
	// Offset is where in the file Start is, in bytes.
	Offset uint64
	File   File
	// Path is the file's name in the process's own view; "" for anonymous memory, "[vdso]" and its like for the kernel's.
	Path string
}

// Program is what a process runs between two execs.
type Program struct {
	// Since and Until are CLOCK_MONOTONIC in nanoseconds; Until is 0 while it runs.
	Since, Until uint64
	// Mappings are sorted by Start and do not overlap. They may be shared with a forked child: never changed in place.
	Mappings []Mapping
}

// Process is one thread group.
type Process struct {
	PID, Parent uint32
	// Programs are what it ran, the newest last. There is at least one.
	Programs []Program
	// Gone is when it ended; zero while it lives.
	Gone time.Time
}

// Now is the program that it runs, or ran last.
func (p *Process) Now() *Program { return &p.Programs[len(p.Programs)-1] }

// At is the program that it ran at a time of CLOCK_MONOTONIC.
func (p *Process) At(at uint64) *Program {
	for i := len(p.Programs) - 1; i > 0; i-- {
		if p.Programs[i].Since <= at {
			return &p.Programs[i]
		}
	}
	return &p.Programs[0]
}

// Find gives the mapping that contains an address.
func (p *Program) Find(address uint64) (Mapping, bool) {
	i, found := slices.BinarySearchFunc(p.Mappings, address, func(m Mapping, a uint64) int {
		switch {
		case m.End <= a:
			return -1
		case m.Start > a:
			return 1
		}
		return 0
	})
	if !found {
		return Mapping{}, false
	}
	return p.Mappings[i], true
}

// Table is every process. It is not safe for concurrent use.
type Table struct {
	processes map[uint32]*Process
}

// NewTable makes an empty table.
func NewTable() *Table { return &Table{processes: map[uint32]*Process{}} }

// SetParent notes the parent of a process whose Fork was not seen.
func (t *Table) SetParent(pid, parent uint32) {
	if p := t.processes[pid]; p != nil {
		p.Parent = parent
	}
}

// Get gives a process by its number; nil if it is not known.
func (t *Table) Get(pid uint32) *Process { return t.processes[pid] }

// Len is the number of processes that are kept.
func (t *Table) Len() int { return len(t.processes) }

// Fork notes a new process. It runs what its parent runs, mapped as the parent has it.
func (t *Table) Fork(pid, parent uint32, at uint64) *Process {
	program := Program{Since: at}
	if p := t.processes[parent]; p != nil {
		program.Mappings = p.Now().Mappings
	}
	child := &Process{PID: pid, Parent: parent, Programs: []Program{program}}
	t.processes[pid] = child
	return child
}

// Exec notes that a process runs another program, with nothing mapped yet.
func (t *Table) Exec(pid uint32, at uint64) *Process {
	p := t.processes[pid]
	if p == nil || !p.Gone.IsZero() {
		p = &Process{PID: pid}
		t.processes[pid] = p
	} else {
		p.Now().Until = at
	}
	p.Programs = append(p.Programs, Program{Since: at})
	return p
}

// Map notes a new mapping, which takes the place of what was at its addresses.
func (t *Table) Map(pid uint32, m Mapping, at uint64) *Process {
	p := t.processes[pid]
	if p == nil {
		p = &Process{PID: pid, Programs: []Program{{Since: at}}}
		t.processes[pid] = p
	}
	p.Now().Mappings = insert(p.Now().Mappings, m)
	return p
}

// Exit notes the end of a process. It stays known until Prune.
func (t *Table) Exit(pid uint32, now time.Time) {
	if p := t.processes[pid]; p != nil && p.Gone.IsZero() {
		p.Gone = now
	}
}

// Prune forgets the processes that ended, and the programs that were left by an exec, before a moment, and gives the
// numbers of the processes forgotten. moment is on both clocks.
func (t *Table) Prune(moment time.Time, monotonic uint64) []uint32 {
	var forgotten []uint32
	for pid, p := range t.processes {
		if !p.Gone.IsZero() && p.Gone.Before(moment) {
			delete(t.processes, pid)
			forgotten = append(forgotten, pid)
			continue
		}
		for len(p.Programs) > 1 && p.Programs[0].Until < monotonic {
			p.Programs = p.Programs[1:]
		}
	}
	slices.Sort(forgotten)
	return forgotten
}

// Each visits every process that lives.
func (t *Table) Each(visit func(*Process)) {
	for _, p := range t.processes {
		if p.Gone.IsZero() {
			visit(p)
		}
	}
}

// insert gives a new slice with m in place of what overlaps it; a mapping that is cut keeps its other part.
func insert(in []Mapping, m Mapping) []Mapping {
	out := make([]Mapping, 0, len(in)+1)
	placed := false
	for _, old := range in {
		if !placed && old.Start >= m.Start {
			out = append(out, m)
			placed = true
		}
		if old.End <= m.Start || old.Start >= m.End {
			out = append(out, old)
			continue
		}
		if old.Start < m.Start {
			left := old
			left.End = m.Start
			out = append(out, left)
			if !placed {
				out = append(out, m)
				placed = true
			}
		}
		if old.End > m.End {
			right := old
			right.Offset += m.End - old.Start
			right.Start = m.End
			out = append(out, right)
		}
	}
	if !placed {
		out = append(out, m)
	}
	return out
}
