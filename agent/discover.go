package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/agent/mappings"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/process"
	"github.com/vramprof/vramprof/agent/workload"
	"github.com/vramprof/vramprof/internal/cpython"
	"github.com/vramprof/vramprof/internal/procfs"
)

// watched is what the agent knows of one process that uses a GPU or may come to.
type watched struct {
	gpu         bool // it maps a driver library, or may come to: its stacks are to be whole
	interpreter *cpython.Interpreter
	python      *bpf.Python       // how the kernel half walks interpreter; nil: none yet
	labels      map[string]string // nil: not known yet
	noted       map[string]bool   // problems of this process that were logged
}

// watch follows the kernel's events until ctx ends. scanned gets the result of the first look at the processes that were
// there before.
func (a *Agent) watch(ctx context.Context, scanned chan<- error) {
	scan := func() error { return mappings.Scan("/proc", a.event) }
	err := scan()
	a.mu.Lock()
	a.scanned = true
	a.mu.Unlock()
	scanned <- err
	if err != nil {
		return
	}
	err = a.watcher.Run(ctx, func(e mappings.Event) {
		a.event(e)
		if _, lost := e.(mappings.Lost); lost {
			if err := scan(); err != nil {
				a.log.Warn("scan of processes failed", "error", err)
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		a.log.Error("the kernel's events ended; new processes are not seen any more: restart the agent", "error", err)
	}
}

func (a *Agent) event(e mappings.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e := e.(type) {
	case mappings.Exec:
		a.table.Exec(e.PID, e.Time)
		if e.ParentPID != 0 {
			a.table.SetParent(e.PID, e.ParentPID)
		}
		a.forget(e.PID)
	case mappings.Fork:
		a.table.Fork(e.PID, e.ParentPID, e.Time)
		if w := a.watched[e.ParentPID]; w != nil {
			child := *w
			a.watched[e.PID] = &child
			a.publish(e.PID)
		}
	case mappings.Mmap:
		if e.PID == uint32(os.Getpid()) && a.passed(e.Start) {
			return
		}
		m := process.Mapping{
			Start: e.Start, End: e.End, Offset: e.Offset, Path: e.Path,
			File: process.File{BuildID: string(e.BuildID), Dev: e.Dev, Inode: e.Inode},
		}
		if m.File.BuildID != "" {
			m.File.Dev, m.File.Inode = 0, 0
		}
		a.table.Map(e.PID, m, e.Time)
		a.mapped(e.PID, m)
	case mappings.Exit:
		a.table.Exit(e.PID, time.Now())
		a.forget(e.PID)
	case mappings.Lost:
		a.health.EventsLost++
	case mappings.Unreadable:
		a.health.Unreadable["process"]++
		a.log.Info("process not readable; if it uses a GPU its stacks have no names", "pid", e.PID, "error", e.Err)
	}
}

// mapped decides what a new mapping means for its process.
func (a *Agent) mapped(pid uint32, m process.Mapping) {
	if !strings.HasPrefix(m.Path, "/") || a.options.OnlyBelow != 0 && !a.below(pid) {
		return
	}
	w := a.watched[pid]
	if a.options.OnlyBelow != 0 { // it may come to use a GPU: then its stacks are whole from the first on
		w = a.watchedOf(pid)
		w.gpu = true
	}
	look := a.object
	if w == nil || !w.gpu {
		look = a.inspect
	}
	o, err := look(pid, m)
	if o != nil && (o.Python != nil || o.PythonProblem != "") && (w == nil || w.python == nil) {
		w = a.watchedOf(pid)
		a.findPython(pid, w, o, m)
		a.publish(pid)
	}
	_, driver := gpuapi.DriverLibrary(path.Base(m.Path))
	switch {
	case driver:
		w = a.watchedOf(pid)
		if !w.gpu {
			w.gpu = true
			a.open(pid)
		}
		if err := a.attachMapping(pid, m, w); errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			a.health.Unattached["process gone"]++ // what it had mapped carries probes, or nobody runs it any more
		} else if err != nil {
			a.unattached(w, m.Path, err)
		}
		a.identify(pid, w)
	case w == nil || !w.gpu:
		return
	}
	if err != nil {
		a.unreadable(w, m.Path, err)
	}
	a.publish(pid)
	a.wantRows(pid)
}

// object opens the file of a mapping, or gives it as it was opened before.
func (a *Agent) object(pid uint32, m process.Mapping) (*objects.Object, error) {
	if m.File == (process.File{}) || !strings.HasPrefix(m.Path, "/") {
		return nil, nil
	}
	return a.options.Objects.Get(objects.Key(m.File), pid, m.Start, m.End, m.Path)
}

// below tells whether a process is a descendant of the one whose descendants are profiled.
func (a *Agent) below(pid uint32) bool {
	for range 64 {
		p := a.table.Get(pid)
		if p == nil {
			return false
		}
		if pid = p.Parent; pid == a.options.OnlyBelow {
			return true
		}
	}
	return false
}

// open opens what a process that uses a GPU has mapped, while it is there to open it through.
func (a *Agent) open(pid uint32) {
	p := a.table.Get(pid)
	if p == nil {
		return
	}
	for _, m := range p.Now().Mappings {
		if _, err := a.object(pid, m); err != nil {
			a.unreadable(a.watched[pid], m.Path, err)
		}
	}
}

// inspect does as object does for a process that uses no GPU, and keeps no file of its open.
func (a *Agent) inspect(pid uint32, m process.Mapping) (*objects.Object, error) {
	if m.File == (process.File{}) {
		return nil, nil
	}
	return a.options.Objects.Inspect(objects.Key(m.File), pid, m.Start, m.End, m.Path)
}

func (a *Agent) watchedOf(pid uint32) *watched {
	w := a.watched[pid]
	if w == nil {
		w = &watched{noted: map[string]bool{}}
		a.watched[pid] = w
	}
	return w
}

func (a *Agent) forget(pid uint32) {
	w := a.watched[pid]
	if w == nil {
		return
	}
	delete(a.watched, pid)
	a.left[pid] = w
	if err := a.kernel.DeleteImage(pid); err != nil {
		a.log.Warn("forget process", "pid", pid, "error", err)
	}
}

// findPython prepares the walk of a process's Python frames from what the file alone says: at mapping time the
// interpreter is not initialised, so nothing is read from the process.
func (a *Agent) findPython(pid uint32, w *watched, o *objects.Object, m process.Mapping) {
	if o.PythonProblem != "" {
		a.note(w, "python is not walked", "file", m.Path, "pid", pid, "reason", o.PythonProblem)
		return
	}
	bias, ok := o.LoadBias(m.Start, m.Offset)
	if !ok || !o.BeginsSegment(m.Offset) {
		return
	}
	w.interpreter = o.Python
	w.python = bpf.NewPython(o.Python.Layout, o.Python.Runtime+bias)
}

// publish has the kernel half told what is known of a process: of its Python at once, of its mappings soon.
func (a *Agent) publish(pid uint32) {
	w := a.watched[pid]
	if w.python != nil {
		if start, err := startStack(pid); err == nil { // else it is gone, and its end is on its way
			if err := a.kernel.SetPython(pid, start, w.python); err != nil {
				a.note(w, "Python is not walked in this process", "pid", pid, "error", err)
			}
		}
	}
	if w.gpu {
		a.unpublished[pid] = true
		a.signal(a.publishing)
	}
}

// publishImages tells the kernel half of mappings, until ctx ends. What changes meanwhile is told in the next round, and
// a round's processes are told at the same time, since all wait for the same thing.
func (a *Agent) publishImages(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.publishing:
		}
		a.mu.Lock()
		round := a.unpublished
		a.unpublished = map[uint32]bool{}
		a.mu.Unlock()
		var all sync.WaitGroup
		for pid := range round {
			all.Go(func() { a.publishImage(pid) })
		}
		all.Wait()
	}
}

func (a *Agent) publishImage(pid uint32) {
	a.mu.Lock()
	w, p := a.watched[pid], a.table.Get(pid)
	if w == nil || p == nil {
		a.mu.Unlock()
		return
	}
	image := bpf.Image{Python: w.python}
	var err error
	if image.StartStack, err = startStack(pid); err != nil {
		a.mu.Unlock()
		return // it is gone; its end is on its way
	}
	for _, m := range p.Now().Mappings {
		image.Mappings = append(image.Mappings, a.imageMapping(pid, m))
	}
	a.mu.Unlock()

	err = a.kernel.SetImage(pid, image)

	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.note(w, "stacks of this process are finished by user space", "pid", pid, "error", err)
	}
	if a.watched[pid] != w { // it ended, or runs another program, meanwhile
		if err := a.kernel.DeleteImage(pid); err != nil {
			a.log.Warn("forget process", "pid", pid, "error", err)
		}
		if a.watched[pid] != nil {
			a.publish(pid)
		}
	}
}

func (a *Agent) imageMapping(pid uint32, m process.Mapping) bpf.Mapping {
	out := bpf.Mapping{Start: m.Start, End: m.End, Base: m.Start}
	o, err := a.object(pid, m)
	if o == nil || err != nil {
		return out
	}
	rows, ok := a.rows[o]
	if !ok {
		return out
	}
	table, err := o.Rows() // parsed already, when the rows were loaded
	if err != nil {
		return out
	}
	if bias, ok := o.LoadBias(m.Start, m.Offset); ok {
		out.Base, out.Rows = bias+table.Base, rows
	}
	return out
}

// identify reads who a process is while it is there to say so.
func (a *Agent) identify(pid uint32, w *watched) {
	if w.labels != nil {
		return
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			return nil
		}
		return b
	}
	comm := strings.TrimSuffix(string(read("comm")), "\n")
	if comm == "" {
		return // it is gone; its first call told its name
	}
	w.labels = workload.Identify(workload.Process{
		Comm: comm, Cmdline: procfs.Cmdline(read("cmdline")), Environ: procfs.Environ(read("environ")),
	}, a.options.Labels)
}

func (a *Agent) unattached(w *watched, file string, err error) {
	a.health.Unattached[path.Base(file)]++
	a.note(w, "driver library not attached, its memory is not seen", "file", file, "error", err)
}

func (a *Agent) unreadable(w *watched, file string, err error) {
	reason := "unreadable"
	if errors.Is(err, objects.ErrGone) {
		reason = "gone"
	}
	a.health.Unreadable[reason]++
	a.note(w, "file not read: its frames have no unwind rows and no names", "file", file, "error", err)
}

// note logs a problem of a process once. w is nil for one that is gone: then there is no use in it.
func (a *Agent) note(w *watched, message string, args ...any) {
	key := message + fmt.Sprint(args...)
	if w == nil || w.noted[key] {
		return
	}
	w.noted[key] = true
	a.log.Warn(message, args...)
}

func startStack(pid uint32) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	s, err := procfs.ParseStat(b)
	if err != nil {
		return 0, err
	}
	return s.StartStack, nil
}
