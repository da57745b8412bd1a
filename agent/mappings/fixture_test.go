package mappings_test

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/agent/mappings"
)

// log is every event since a watcher was opened.
type log struct {
	mu     sync.Mutex
	more   *sync.Cond
	events []mappings.Event
	seen   []uint64 // when each was received
}

func now(t testing.TB) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Error(err)
	}
	return uint64(ts.Nano())
}

// watch runs a watcher until the test ends.
func watch(t testing.TB) *log {
	t.Helper()
	w, err := mappings.Open(mappings.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return follow(t, w)
}

func follow(t testing.TB, w *mappings.Watcher) *log {
	l := &log{}
	l.more = sync.NewCond(&l.mu)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- w.Run(ctx, func(e mappings.Event) {
			at := now(t)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events, l.seen = append(l.events, e), append(l.seen, at)
			l.more.Broadcast()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// await waits until an event comes that fits, and gives the events up to it that are pid's; 0: all of them.
func (l *log) await(t testing.TB, pid uint32, what string, fits func(mappings.Event) bool) []mappings.Event {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, nil)
		l.more.Broadcast()
	})
	defer late.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	var of []mappings.Event
	for i := 0; ; i++ {
		for i == len(l.events) {
			l.more.Wait()
		}
		e := l.events[i]
		if e == nil {
			t.Fatalf("no %s of %d; there were %+v", what, pid, of)
		}
		if pid == 0 || pidOf(e) == pid {
			of = append(of, e)
			if fits(e) {
				return of
			}
		}
	}
}

func (l *log) awaitExit(t testing.TB, pid uint32) []mappings.Event {
	t.Helper()
	return l.await(t, pid, "exit", func(e mappings.Event) bool { _, ok := e.(mappings.Exit); return ok })
}

func (l *log) awaitMmap(t testing.TB, pid uint32, path string) (mappings.Mmap, []mappings.Event) {
	t.Helper()
	events := l.await(t, pid, "mapping of "+path, func(e mappings.Event) bool {
		m, ok := e.(mappings.Mmap)
		return ok && m.Path == path
	})
	return events[len(events)-1].(mappings.Mmap), events
}

func pidOf(e mappings.Event) uint32 {
	switch e := e.(type) {
	case mappings.Exec:
		return e.PID
	case mappings.Mmap:
		return e.PID
	case mappings.Fork:
		return e.PID
	case mappings.Exit:
		return e.PID
	}
	return 0
}

func timeOf(e mappings.Event) uint64 {
	switch e := e.(type) {
	case mappings.Exec:
		return e.Time
	case mappings.Mmap:
		return e.Time
	case mappings.Fork:
		return e.Time
	case mappings.Exit:
		return e.Time
	case mappings.Lost:
		return e.Time
	}
	return 0
}

var program struct{ path string }

// unprivileged is set where the tests run once more, as a user without capabilities.
const unprivileged = "MAPPINGS_TEST_UNPRIVILEGED"

// TestMain builds testdata/process.c once.
func TestMain(m *testing.M) {
	if os.Getenv(unprivileged) != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "mappings")
	if err == nil {
		program.path = filepath.Join(dir, "process")
		var out []byte
		if out, err = exec.Command("gcc", "-O1", "-pthread", "-Wl,--build-id", "-o", program.path, "testdata/process.c").CombinedOutput(); err != nil {
			err = fmt.Errorf("gcc: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// process is a running testdata/process.c.
type process struct {
	pid     uint32
	in      io.WriteCloser
	out     *bufio.Reader
	command *exec.Cmd
}

func start(t testing.TB) *process {
	t.Helper()
	c := exec.Command(program.path)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{uint32(c.Process.Pid), in, bufio.NewReader(out), c}
	t.Cleanup(func() { p.end(t) })
	return p
}

// do has the process do something, and gives its answer.
func (p *process) do(t testing.TB, command string, args ...any) string {
	t.Helper()
	if _, err := fmt.Fprintf(p.in, command+"\n", args...); err != nil {
		t.Fatal(err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(answer)
}

// end lets the process exit and waits for it.
func (p *process) end(t testing.TB) {
	t.Helper()
	if p.command.ProcessState != nil {
		return
	}
	if err := p.in.Close(); err != nil {
		t.Error(err)
	}
	if err := p.command.Wait(); err != nil {
		t.Error(err)
	}
}

// buildID reads a build ID with the standard library's ELF reader.
func buildID(t testing.TB, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		t.Fatalf("%s has no build ID", path)
	}
	b, err := s.Data()
	if err != nil || len(b) <= 16 {
		t.Fatalf("%s: build ID of %d bytes: %v", path, len(b), err)
	}
	return string(b[16:])
}
