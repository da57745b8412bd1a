package e2e_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

func TestExitStatus(t *testing.T) {
	for _, test := range []struct {
		name    string
		command []string
		want    int
	}{
		{"success", []string{"true"}, 0},
		{"failure", []string{"sh", "-c", "exit 3"}, 3},
		{"killed", []string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
		{"terminated", []string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		{"not found", []string{"no-such-command"}, 127},
		{"no such file", []string{"/no/such/command"}, 127},
		{"not executable", []string{"/etc/passwd"}, 126},
		{"failure after allocations", []string{"sh", "-c", "./chain; exit 4"}, 4},
		{"killed after allocations", []string{"sh", "-c", "./chain; kill -SEGV $$"}, 128 + 11},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := run(t, nil, test.command...)
			if o.status != test.want || o.report.ExitStatus != test.want {
				t.Errorf("status %d, in the report %d, want %d; on standard error %q", o.status, o.report.ExitStatus, test.want, o.stderr)
			}
			if strings.HasSuffix(test.name, "allocations") {
				wantLedger(t, o, o.calls)
			}
			if (test.want == 126 || test.want == 127) != strings.Contains(o.stderr, test.command[0]) {
				t.Errorf("on standard error: %q", o.stderr)
			}
		})
	}
}

// live is a session with its standard input and what it writes by line.
type live struct {
	*session
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, s *session) live {
	t.Helper()
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = nil
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return live{s, in, bufio.NewReader(out)}
}

func (l live) await(want string) {
	l.t.Helper()
	if line, err := l.out.ReadString('\n'); err != nil || line != want+"\n" {
		l.t.Fatalf("it said %q, want %q: %v\n%s", line, want, err, l.stderr.String())
	}
}

func (l live) goOn() {
	l.t.Helper()
	if _, err := io.WriteString(l.in, "\n"); err != nil {
		l.t.Fatal(err)
	}
}

func (l live) end() outcome {
	l.t.Helper()
	if _, err := l.out.WriteTo(&l.stdout); err != nil {
		l.t.Fatal(err)
	}
	return l.read(l.cmd.Wait())
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Run("handled", func(t *testing.T) {
		l := start(t, newSession(t, nil, "sh", "-c", `trap 'kill $!; exit 7' TERM; sleep 100 >/dev/null & echo ready; wait`))
		l.await("ready")
		if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if o := l.end(); o.status != 7 {
			t.Errorf("status %d, want 7: %s", o.status, o.stderr)
		}
	})
	t.Run("not handled", func(t *testing.T) {
		l := start(t, newSession(t, nil, "./chain", "--keep", "10", "--hold"))
		l.await("hold")
		if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		o := l.end()
		if o.status != 128+15 {
			t.Errorf("status %d, want 143: %s", o.status, o.stderr)
		}
		if truth := wantLedger(t, o, o.calls); o.sum(t, "gpu_peak_bytes") != truth.InUse.Bytes || truth.InUse.Objects != 10 {
			t.Errorf("peak %d, the ledger has %+v in use", o.sum(t, "gpu_peak_bytes"), truth.InUse)
		}
	})
}

func TestUnwritableOutputIsToldBeforeTheCommandRuns(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	c := exec.Command(built.vramprof, "run", "-o", "/no/such/folder/mem.pb.gz", "--", "touch", ran)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "/no/such/folder/mem.pb.gz") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}

// TestOnlyDescendants has another process allocate with the same driver after the profiled one has loaded it, when all
// that attaches is attached, and before that one allocates.
func TestOnlyDescendants(t *testing.T) {
	other := filepath.Join(t.TempDir(), "ledger")
	stranger := exec.Command(built.driver.Chain, "--wait", "--size", "5000000")
	stranger.Env = append(os.Environ(), built.driver.Env(other)...)
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := stranger.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill() }) // it is gone already where the test passes
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "start\n" {
		t.Fatalf("%q, %v", line, err)
	}
	l := start(t, newSession(t, nil, "./chain", "--wait"))
	l.await("start")
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Wait(); err != nil {
		t.Fatal(err)
	}
	if calls, err := fakegpu.ReadLedger(other); err != nil || fakegpu.Total(calls).Alloc.Objects != 10 {
		t.Fatalf("the other process allocated %+v, %v", fakegpu.Total(calls), err)
	}
	l.goOn()
	wantLedger(t, l.end(), mustLedger(t, l.ledger))
}

func mustLedger(t *testing.T, path string) []fakegpu.Call {
	t.Helper()
	calls, err := fakegpu.ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// TestDaemonsAreDescendants has the allocating process be in a session of its own, its parent and that one's gone.
func TestDaemonsAreDescendants(t *testing.T) {
	dir := t.TempDir()
	o := ok(t, nil, "sh", "-c", `set -e
mkfifo "$0/go" "$0/done"
setsid sh -c '(read x <"$0/go"; ./chain --iterations 7; echo done >"$0/done") & exit 0' "$0"
echo go >"$0/go"
read x <"$0/done"`, dir)
	if truth := wantLedger(t, o, o.calls); truth.Alloc.Objects != 7 {
		t.Errorf("%d allocations, want 7", truth.Alloc.Objects)
	}
}
