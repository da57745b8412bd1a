package mappings_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vramprof/vramprof/agent/mappings"
)

func TestExec(t *testing.T) {
	l := watch(t)
	p := start(t)
	m, _ := l.awaitMmap(t, p.pid, program.path)
	if string(m.BuildID) != buildID(t, program.path) {
		t.Errorf("build ID %x, want %x", m.BuildID, buildID(t, program.path))
	}
	p.end(t)
	events := l.awaitExit(t, p.pid)
	if f, ok := events[0].(mappings.Fork); !ok || f.ParentPID != uint32(os.Getpid()) {
		t.Errorf("begins with %+v", events[0])
	}
	if x, ok := events[1].(mappings.Exec); !ok || x.Comm != "process" {
		t.Errorf("goes on with %+v", events[1])
	}
	vdso, libc := false, false
	for i, e := range events[1:] {
		if timeOf(e) < timeOf(events[i]) {
			t.Errorf("%+v comes after %+v", e, events[i])
		}
		if m, ok := e.(mappings.Mmap); ok {
			vdso = vdso || m.Path == "[vdso]"
			libc = libc || strings.HasPrefix(filepath.Base(m.Path), "libc.so")
		}
	}
	if !vdso || !libc {
		t.Errorf("[vdso] %v, libc %v in %+v", vdso, libc, events)
	}
}

// B04: a library that is opened long after the start.
func TestDlopen(t *testing.T) {
	l := watch(t)
	p := start(t)
	for i, flags := range [][]string{{"-Wl,--build-id"}, {"-Wl,--build-id=none"}} {
		path := filepath.Join(t.TempDir(), "a library with spaces.so")
		c := exec.Command("gcc", append(flags, "-shared", "-fPIC", "-x", "c", "-o", path, "-")...)
		c.Stdin = strings.NewReader(fmt.Sprintf("int f%d(void) { return 7; }", i))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		if got := p.do(t, "dlopen %s", path); got != "1" {
			t.Fatalf("dlopen %s", got)
		}
		m, _ := l.awaitMmap(t, p.pid, path)
		found := false
		for _, s := range scanOf(t, p.pid) {
			if s, ok := s.(mappings.Mmap); ok && s.Path == path {
				found = true
				if m.BuildID == nil && (m.Dev != s.Dev || m.Inode != s.Inode || m.Inode == 0) {
					t.Errorf("file %x %d, in /proc %x %d", m.Dev, m.Inode, s.Dev, s.Inode)
				}
				if m.Start != s.Start || m.End != s.End || m.Offset != s.Offset || m.Deleted || s.Deleted || string(m.BuildID) != string(s.BuildID) {
					t.Errorf("got %+v, in /proc %+v", m, s)
				}
			}
		}
		want := ""
		if i == 0 {
			want = buildID(t, path)
		}
		if !found || string(m.BuildID) != want {
			t.Errorf("found in /proc: %v; build ID %x, want %x", found, m.BuildID, want)
		}
	}
}

// Memory that a JIT compiler makes executable after it has written to it.
func TestAnonymous(t *testing.T) {
	l := watch(t)
	p := start(t)
	at, err := strconv.ParseUint(strings.TrimPrefix(p.do(t, "jit"), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := l.awaitMmap(t, p.pid, "")
	if m.Start != at || m.End != at+4096 || m.Offset != 0 || m.BuildID != nil || m.Inode != 0 {
		t.Errorf("%+v at %#x", m, at)
	}
}

// B05: children of children, and threads apart from them.
func TestFork(t *testing.T) {
	l := watch(t)
	p := start(t)
	if got := p.do(t, "thread"); got != "0" {
		t.Fatalf("thread: %s", got)
	}
	child, err := strconv.Atoi(p.do(t, "fork"))
	if err != nil {
		t.Fatal(err)
	}
	events := l.await(t, uint32(child), "fork", func(mappings.Event) bool { return true })
	if f, ok := events[0].(mappings.Fork); !ok || f.ParentPID != p.pid {
		t.Errorf("%+v", events[0])
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.awaitExit(t, uint32(child))
	p.end(t)
	forks, exits := 0, 0
	for _, e := range l.awaitExit(t, p.pid) {
		switch e.(type) {
		case mappings.Fork:
			forks++
		case mappings.Exit:
			exits++
		}
	}
	if forks != 1 || exits != 1 {
		t.Errorf("%d forks and %d exits of a process with threads", forks, exits)
	}
}

// The first thread leaves, and the process goes on.
func TestExitIsTheLastThreads(t *testing.T) {
	for _, early := range []bool{true, false} { // whether the watcher saw the process start
		var l *log
		var p *process
		if early {
			l, p = watch(t), start(t)
			p.do(t, "leave")
		} else {
			p = start(t)
			p.do(t, "leave")
			l = watch(t)
		}
		child := p.do(t, "fork") // an event after the first thread's end
		pid, err := strconv.Atoi(child)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, e := range l.await(t, 0, "exit of the child", func(e mappings.Event) bool { x, ok := e.(mappings.Exit); return ok && x.PID == uint32(pid) }) {
			if x, ok := e.(mappings.Exit); ok && x.PID == p.pid {
				t.Errorf("exit while a thread goes on (seen from the start: %v)", early)
			}
		}
		if events := scanOf(t, p.pid); len(events) < 3 {
			t.Errorf("scan of a process without its first thread: %+v", events)
		}
		p.end(t)
		l.awaitExit(t, p.pid)
	}
}

// exec by a thread that is not the first one, which then takes its number.
func TestExecOfAThread(t *testing.T) {
	l := watch(t)
	p := start(t)
	p.do(t, "thread")
	if _, err := fmt.Fprintf(p.in, "exec %s\n", program.path); err != nil {
		t.Fatal(err)
	}
	execs := 0 // what is written before the second could still be read by the first program
	l.await(t, p.pid, "second exec", func(e mappings.Event) bool {
		if _, ok := e.(mappings.Exec); ok {
			execs++
		}
		return execs == 2
	})
	if got := p.do(t, "thread"); got != "0" { // answered by the new program
		t.Fatal(got)
	}
	p.end(t)
	exits, mapped := 0, 0
	execs = 0
	for _, e := range l.awaitExit(t, p.pid) {
		switch e := e.(type) {
		case mappings.Exec:
			execs++
		case mappings.Exit:
			exits++
		case mappings.Mmap:
			if e.Path == program.path {
				mapped++
			}
		}
	}
	if execs != 2 || exits != 1 || mapped != 2 {
		t.Errorf("%d execs, %d mappings of the program, %d exits", execs, mapped, exits)
	}
}

// B04: 500 processes that live for milliseconds, on all CPUs.
func TestStorm(t *testing.T) {
	l := watch(t)
	p := start(t)
	const n = 500
	copied := filepath.Join(t.TempDir(), "true")
	if out, err := exec.Command("cp", "/bin/true", copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	began := now(t)
	pids := strings.Fields(p.do(t, "storm %d %s", n, copied))
	took := now(t) - began
	if len(pids) != n {
		t.Fatalf("%d processes", len(pids))
	}
	want := buildID(t, copied)
	for _, s := range pids {
		pid, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		events := l.awaitExit(t, uint32(pid))
		var order []string
		for _, e := range events {
			switch e := e.(type) {
			case mappings.Fork:
				order = append(order, fmt.Sprintf("fork by %v", e.ParentPID == p.pid))
			case mappings.Exec:
				order = append(order, "exec "+e.Comm)
			case mappings.Exit:
				order = append(order, "exit")
			case mappings.Mmap:
				switch {
				case e.Path == copied:
					order = append(order, fmt.Sprintf("mmap %v", string(e.BuildID) == want))
				case strings.HasPrefix(filepath.Base(e.Path), "libc.so"):
					order = append(order, "libc")
				}
			}
		}
		if !slices.Equal(order, []string{"fork by true", "exec true", "mmap true", "libc", "exit"}) {
			t.Errorf("%s: %q", s, order)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var late []uint64
	for i, e := range l.events {
		if lost, ok := e.(mappings.Lost); ok {
			t.Errorf("%d reports lost", lost.Count)
		}
		late = append(late, l.seen[i]-timeOf(e))
	}
	slices.Sort(late)
	t.Logf("%d processes in %d ms, %d events; received after %d µs (median), %d µs (99 %%), %d µs (last)", n, took/1e6, len(late),
		late[len(late)/2]/1e3, late[len(late)*99/100]/1e3, late[len(late)-1]/1e3)
	if late[len(late)/2] > 50e6 {
		t.Error("events come late: is the reader woken by each?")
	}
}

// A reader that is too slow is told so, and of all that ended meanwhile.
func TestLost(t *testing.T) {
	w, err := mappings.Open(mappings.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := start(t)
	// Nobody reads: more than the rings hold.
	p := start(t)
	for range 6 {
		p.do(t, "storm 500 /bin/true")
	}
	before.end(t)
	p.do(t, "storm 500 /bin/true")
	l := follow(t, w)
	p.do(t, "storm 8 /bin/true") // the kernel says what was lost with the next report
	l.await(t, 0, "loss", func(e mappings.Event) bool { lost, ok := e.(mappings.Lost); return ok && lost.Count > 0 })
	l.awaitExit(t, before.pid)
	after := start(t)
	after.end(t)
	all := l.await(t, 0, "exit of a later process", func(e mappings.Event) bool { x, ok := e.(mappings.Exit); return ok && x.PID == after.pid })
	alive := map[uint32]bool{}
	for _, e := range all {
		switch e := e.(type) {
		case mappings.Fork:
			alive[e.PID] = e.ParentPID == p.pid
		case mappings.Exit:
			delete(alive, e.PID)
		}
	}
	for pid, ours := range alive {
		if ours { // a busy machine may take longer to count it
			l.awaitExit(t, pid)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	w, err := mappings.Open(mappings.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Run(ctx, func(e mappings.Event) { t.Errorf("%+v", e) }); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// B41: the error names the capability and the setting. Run again without the capability, in the same binary.
func TestWithoutCapability(t *testing.T) {
	if os.Getenv(unprivileged) != "" {
		_, err := mappings.Open(mappings.Options{})
		fmt.Println(err)
		return
	}
	level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe", "-test.run", "^TestWithoutCapability$")
	c.Env = append(os.Environ(), unprivileged+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.Dir = "/"
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"CAP_PERFMON", "perf_event_paranoid is " + strings.TrimSpace(string(level))} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
}

// BenchmarkLatency says how long after a mapping is made its event is there.
func BenchmarkLatency(b *testing.B) {
	l := watch(b)
	p := start(b)
	for b.Loop() {
		p.do(b, "jit")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var late []uint64
	for i, e := range l.events {
		if m, ok := e.(mappings.Mmap); ok && m.PID == p.pid && m.Path == "" {
			late = append(late, l.seen[i]-m.Time)
		}
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2])/1e3, "µs-median")
	b.ReportMetric(float64(late[len(late)*99/100])/1e3, "µs-99%")
}

// scanOf gives what Scan says of one process.
func scanOf(t testing.TB, pid uint32) []mappings.Event {
	t.Helper()
	var found []mappings.Event
	if err := mappings.Scan("/proc", func(e mappings.Event) {
		if pidOf(e) == pid {
			found = append(found, e)
		}
	}); err != nil {
		t.Error(err)
	}
	return found
}
