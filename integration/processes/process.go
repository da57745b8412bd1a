package processes

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to say something or to end on a busy machine of two cores.
const patience = time.Minute

// Process is a running process of a test. It is killed with the test, if it has not ended, and what it said is in the log
// of a test that fails.
type Process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}
	err   error // of Wait, once ended is closed

	mu   sync.Mutex
	said []string
	more chan struct{} // closed and made anew with each line
}

// Start starts a program, in the test's environment and the given settings, in the form of os.Environ.
func Start(t *testing.T, env []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(program, args...), ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	out, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = into, into
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.cmd.Start(), into.Close()); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	go p.read(out)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), strings.Join(p.lines(), "\n"))
		}
	})
	return p
}

func (p *Process) read(out *os.File) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		p.said = append(p.said, lines.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = errors.Join(lines.Err(), out.Close(), p.cmd.Wait())
	close(p.ended)
}

func (p *Process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said
}

// Await waits for a line that an expression matches, of all that the process has said so far too, and gives the
// expression's first group, or the match if it has none.
func (p *Process) Await(expression string) string {
	p.t.Helper()
	wanted := regexp.MustCompile(expression)
	limit := time.After(patience)
	for seen := 0; ; {
		p.mu.Lock()
		said, more := p.said[seen:], p.more
		p.mu.Unlock()
		for _, line := range said {
			if m := wanted.FindStringSubmatch(line); m != nil {
				return m[len(m)-1]
			}
		}
		seen += len(said)
		select {
		case <-more:
		case <-p.ended:
			if seen == len(p.lines()) {
				p.t.Fatalf("%s ended without saying %q: %v", p.cmd, expression, p.err)
			}
		case <-limit:
			p.t.Fatalf("%s has not said %q in %v", p.cmd, expression, patience)
		}
	}
}

// Said gives the first group of an expression, or the match if it has none, in every line so far that it matches.
func (p *Process) Said(expression string) []string {
	var found []string
	for _, line := range p.lines() {
		if m := regexp.MustCompile(expression).FindStringSubmatch(line); m != nil {
			found = append(found, m[len(m)-1])
		}
	}
	return found
}

// GoOn gives the process a line to read, for which the workloads wait, and tells when.
func (p *Process) GoOn() time.Time {
	p.t.Helper()
	at := time.Now()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatalf("%s: %v", p.cmd, err)
	}
	return at
}

// PID is the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running tells whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// End waits for the process to end with status 0.
func (p *Process) End() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Fatalf("%s: %v", p.cmd, p.err)
		}
	case <-time.After(patience):
		p.t.Fatalf("%s has not ended in %v", p.cmd, patience)
	}
}

// Stop asks the process to end, with SIGTERM, and waits until it has, with status 0.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("%s: %v", p.cmd, err)
	}
	p.End()
}

// Kill ends the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}
