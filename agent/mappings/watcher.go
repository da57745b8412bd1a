package mappings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Options say where to look.
type Options struct {
	// ProcRoot is where the proc file system of the machine's PID namespace is; "/proc" if empty.
	ProcRoot string
}

// Watcher receives the kernel's reports from Open on. It keeps up to 256 KiB of them per CPU until Run reads them.
type Watcher struct {
	procRoot string
	rings    []*ring
	epoll    int
	stop     int // an eventfd that wakes Run
	threads  threads
}

// Open asks the kernel for its reports. Close gives everything back.
func Open(o Options) (*Watcher, error) {
	w := &Watcher{procRoot: o.ProcRoot, epoll: -1, stop: -1}
	if w.procRoot == "" {
		w.procRoot = "/proc"
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch processes: %w", err), w.Close())
	}
	return w, nil
}

func (w *Watcher) open() error {
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err := w.wait(w.stop); err != nil {
		return err
	}
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		r, err := openRing(cpu)
		if errors.Is(err, unix.ENODEV) { // it went offline
			continue
		}
		if err != nil {
			return fmt.Errorf("CPU %d: %w%s", cpu, err, advice(err))
		}
		w.rings = append(w.rings, r)
		if err := w.wait(r.fd); err != nil {
			return err
		}
	}
	// Threads that start or end from here on are both in the census and reported, which does no harm.
	w.threads, err = census(w.procRoot)
	return err
}

func (w *Watcher) wait(fd int) error {
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Run gives every event to handle, one at a time and in order, until ctx ends; then it returns nil. While handle runs, the
// kernel's reports wait in their rings, so it should not take long: a ring holds some 1,500 of them. Run is called once.
func (w *Watcher) Run(ctx context.Context, handle func(Event)) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// The counter of an eventfd cannot be full after one write.
		_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken // Close may follow at once
		}
	}()
	ready := make([]unix.EpollEvent, len(w.rings)+1)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(w.epoll, ready, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("watch processes: epoll_wait: %w", err)
		}
		for _, e := range ready[:max(n, 0)] {
			if e.Events&unix.EPOLLIN == 0 { // its CPU went offline: it would be ready for ever
				if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil); err != nil {
					return fmt.Errorf("watch processes: epoll_ctl: %w", err)
				}
			}
		}
		var failed error
		merge(w.drain, func(r record) {
			if failed == nil && ctx.Err() == nil {
				failed = w.give(r, handle)
			}
		})
		if failed != nil {
			return fmt.Errorf("watch processes: %w", failed)
		}
	}
	return nil
}

func (w *Watcher) drain(to []record) []record {
	for _, r := range w.rings {
		to = r.drain(to)
	}
	return to
}

func (w *Watcher) give(r record, handle func(Event)) error {
	switch r.kind {
	case started:
		w.threads.start(r.pid, r.tid)
		if r.pid != r.parent {
			handle(Fork{PID: r.pid, ParentPID: r.parent, Time: r.time})
		}
	case ended:
		if w.threads.end(r.pid, r.tid) {
			handle(Exit{PID: r.pid, Time: r.time})
		}
	case executed:
		w.threads.execute(r.pid)
		handle(r.event)
	case mapped:
		handle(r.event)
	case lost:
		handle(r.event)
		return w.recount(r.time, handle)
	}
	return nil
}

// recount finds out which processes ended without a report.
func (w *Watcher) recount(time uint64, handle func(Event)) error {
	now, err := census(w.procRoot)
	if err != nil {
		return fmt.Errorf("count processes again after a loss: %w", err)
	}
	before := w.threads
	w.threads = now
	for pid := range before {
		if now[pid] == nil {
			handle(Exit{PID: pid, Time: time})
		}
	}
	return nil
}

// Close ends the reports. It must not be called while Run runs.
func (w *Watcher) Close() error {
	var errs []error
	for _, r := range w.rings {
		errs = append(errs, r.close())
	}
	w.rings = nil
	for _, fd := range []*int{&w.stop, &w.epoll} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop watching processes: %w", err)
	}
	return nil
}

// onlineCPUs reads a list as "0-3,8".
func onlineCPUs() ([]int, error) {
	const path = "/sys/devices/system/cpu/online"
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	var cpus []int
	for _, part := range strings.Split(strings.TrimSpace(string(b)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("list CPUs: %s: %w", path, err)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// advice says what to do about an error of openRing.
func advice(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		level := "unknown"
		if b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err == nil {
			level = strings.TrimSpace(string(b))
		}
		return fmt.Sprintf(": CAP_PERFMON is needed (kernel.perf_event_paranoid is %s; without the capability it has to be 0 or less), and CAP_IPC_LOCK where kernel.perf_event_mlock_kb is below %d", level, ringBytes>>10+unix.Getpagesize()>>10)
	case errors.Is(err, unix.EINVAL):
		return ": Linux 5.12 or later is needed"
	case errors.Is(err, unix.EMFILE):
		return ": raise the limit on open files; one is needed for each CPU"
	}
	return ""
}
