// Package mappings tells which processes start, fork and end and which files they map executable, as the kernel reports
// it, a fraction of a millisecond after it happened and without polling.
//
// One perf event per CPU, of no hardware, carries the reports of whatever runs there (PERF_RECORD_MMAP2 with build IDs,
// COMM, FORK, EXIT; perf_event_open(2)); Watcher merges the CPUs' reports into the order in which they happened. Scan
// gives the processes that are there already as the same events. To miss nothing: Open, then Scan, then Run.
//
// It needs Linux 5.12 and CAP_PERFMON. The kernel reports no munmap: a mapping stands until another takes its place. A
// CPU that is brought online after Open is not watched.
package mappings

// Event is an Exec, Mmap, Fork, Exit, Lost or Unreadable.
type Event interface{ event() }

// Exec says that a process runs another program from now on, and that nothing of what it had mapped is left.
type Exec struct {
	PID uint32
	// ParentPID is the process's parent where Scan tells it; 0 from a Watcher, whose Fork told it.
	ParentPID uint32
	// Comm is the new name of the process, at most 15 bytes.
	Comm string
	// Time is CLOCK_MONOTONIC in nanoseconds, as in all events.
	Time uint64
}

// Mmap says that a process has mapped memory executable, or has made it so.
type Mmap struct {
	PID, TID uint32
	// Start and End are addresses of the process; End is the first one behind.
	Start, End uint64
	// Offset is where in the file Start is, in bytes.
	Offset uint64
	// Path is the file's name as the process sees it; a name in brackets for memory of the kernel's making, as [vdso]; or ""
	// for memory without a file, where a JIT compiler puts its code.
	Path string
	// Deleted tells that nothing is at Path any more, or something else: the file was removed or replaced.
	Deleted bool
	// BuildID is the file's GNU build ID, of at most 20 bytes, or nil. A Watcher that knows it does not know Dev and Inode.
	BuildID []byte
	// Dev, as makedev gives it, and Inode are the file's, as in /proc/PID/maps; 0 if not known.
	Dev, Inode uint64
	Time       uint64
}

// Fork says that a process started a new one, which has everything mapped that it has. The start of a thread is no Fork.
type Fork struct {
	// ParentPID is 0 for a parent outside of the PID namespace.
	PID, ParentPID uint32
	Time           uint64
}

// Exit says that a process is gone, which it is once its last thread has ended.
type Exit struct {
	PID  uint32
	Time uint64
}

// Lost says that the kernel had no room for that many reports, of any kind and process: Scan again. Ends of processes that
// are among them are made up for by Exit events after it.
type Lost struct {
	Count uint64
	Time  uint64
}

// Unreadable says that Scan could not read a process, which needs CAP_SYS_PTRACE and no less capabilities than the process
// has itself. It is not known what the process has mapped, and what it maps from now on is.
type Unreadable struct {
	PID uint32
	Err error
}

func (Exec) event()       {}
func (Mmap) event()       {}
func (Fork) event()       {}
func (Exit) event()       {}
func (Lost) event()       {}
func (Unreadable) event() {}
