// Package e2e_test runs the built program as a user does, on the fake driver, and compares what it says with what the
// driver and the workloads themselves wrote down. It needs root, since it loads programs into the kernel, and fails
// without.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

// built is what TestMain has built: the program and the fake driver. The cache is where the program keeps symbols during
// these tests, so that none is left from another build.
var built struct {
	vramprof, cache string
	driver          fakegpu.Driver
}

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "vramprof-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.vramprof, built.cache = filepath.Join(dir, "vramprof"), filepath.Join(dir, "cache")
	if out, err := exec.Command("go", "build", "-o", built.vramprof, "../../cmd/vramprof").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build vramprof: %v\n%s", err, out)
		return 1
	}
	if built.driver, err = fakegpu.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// session is one `vramprof run` with the fake driver.
type session struct {
	t   *testing.T
	cmd *exec.Cmd
	// ledger and notes are where the driver and the workloads write what they did.
	ledger, notes  string
	output         string
	stdout, stderr bytes.Buffer
}

// patience is how long one run may take on a busy machine before it counts as hanging.
const patience = 2 * time.Minute

func newSession(t *testing.T, env []string, command ...string) *session {
	t.Helper()
	dir := t.TempDir()
	s := &session{t: t, ledger: filepath.Join(dir, "ledger"), notes: filepath.Join(dir, "notes"), output: filepath.Join(dir, "mem.pb.gz")}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s.cmd = exec.CommandContext(ctx, built.vramprof, append([]string{"run", "--format", "json", "-o", s.output, "--"}, command...)...)
	s.cmd.Dir = built.driver.Dir
	s.cmd.Env = append(append(os.Environ(), built.driver.Env(s.ledger)...), "FAKEGPU_TRACEBACKS="+s.notes, "XDG_CACHE_HOME="+built.cache)
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	s.cmd.WaitDelay = time.Second
	return s
}

// outcome is what is there after a run.
type outcome struct {
	status         int
	stdout, stderr string
	profile        *profile.Profile
	report         report
	calls          []fakegpu.Call
	notes          string
}

type report struct {
	ExitStatus     int   `json:"exit_status"`
	AllocatedBytes int64 `json:"allocated_bytes"`
	Allocations    int64 `json:"allocations"`
	PeakBytes      int64 `json:"peak_bytes"`
	FailedBytes    int64 `json:"failed_bytes"`
	Failed         int64 `json:"failed"`
	Top            []struct {
		AllocatedBytes int64 `json:"allocated_bytes"`
		Allocations    int64 `json:"allocations"`
		PeakBytes      int64 `json:"peak_bytes"`
		FailedBytes    int64 `json:"failed_bytes"`
	} `json:"top"`
}

// run runs a command to its end; a status other than 0 is for the test to judge.
func run(t *testing.T, env []string, command ...string) outcome {
	t.Helper()
	s := newSession(t, env, command...)
	return s.read(s.cmd.Run())
}

// ok is run for a command that succeeds.
func ok(t *testing.T, env []string, command ...string) outcome {
	t.Helper()
	o := run(t, env, command...)
	if o.status != 0 {
		t.Fatalf("status %d, on standard error: %s", o.status, o.stderr)
	}
	if o.stderr != "" {
		t.Logf("on standard error: %s", o.stderr)
	}
	return o
}

// read reads what a run left, given how it ended.
func (s *session) read(ended error) outcome {
	s.t.Helper()
	var exit *exec.ExitError
	if ended != nil && (!errors.As(ended, &exit) || exit.ExitCode() < 0) {
		s.t.Fatalf("%s: %v\n%s", s.cmd, ended, s.stderr.String())
	}
	o := outcome{status: s.cmd.ProcessState.ExitCode(), stdout: s.stdout.String(), stderr: s.stderr.String(), notes: s.notes}
	if at := strings.Index(o.stdout, "{\n"); at >= 0 {
		if err := json.Unmarshal([]byte(o.stdout[at:]), &o.report); err != nil {
			s.t.Fatalf("report %q: %v", o.stdout, err)
		}
	}
	if _, err := os.Stat(s.ledger); err == nil {
		if o.calls, err = fakegpu.ReadLedger(s.ledger); err != nil {
			s.t.Fatal(err)
		}
	}
	file, err := os.Open(s.output)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	if o.profile, err = profile.Parse(file); err != nil {
		s.t.Fatalf("profile: %v\n%s", err, o.stderr)
	}
	return o
}

// value gives one number of a sample.
func value(t *testing.T, p *profile.Profile, s *profile.Sample, name string) int64 {
	t.Helper()
	for i, sampleType := range p.SampleType {
		if sampleType.Type == name {
			return s.Value[i]
		}
	}
	t.Fatalf("the profile has no %s, only %v", name, p.SampleType)
	return 0
}

// sum gives one number over all stacks.
func (o outcome) sum(t *testing.T, name string) uint64 {
	t.Helper()
	var all int64
	for _, s := range o.profile.Sample {
		all += value(t, o.profile, s, name)
	}
	return uint64(all)
}

// frame is one frame of a stack of the profile. Object is the base name of its file, empty for a frame of Python.
type frame struct {
	Object, Function, System, File string
	Line                           int64
	Address                        uint64
}

func (f frame) String() string {
	if f.Object == "" {
		return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
	}
	return f.Function + " in " + f.Object
}

func (f frame) python() bool { return f.Object == "" }

// frames gives a sample's stack, innermost first. A frame of no object of the process has a mapping of that name, because
// readers of pprof leave out or misname frames without one.
func frames(s *profile.Sample) []frame {
	var all []frame
	for _, l := range s.Location {
		object := path.Base(l.Mapping.File)
		if l.Mapping.File == "[no object]" {
			object = ""
		}
		for _, n := range l.Line {
			all = append(all, frame{object, n.Function.Name, n.Function.SystemName, n.Function.Filename, n.Line, l.Address})
		}
	}
	return all
}

// text writes a stack for a person.
func text(stack []frame) string {
	var b strings.Builder
	for _, f := range stack {
		fmt.Fprintf(&b, "\n\t%s", f)
	}
	return b.String()
}

// wantLedger compares what was allocated and what was refused with the ledger, to the byte.
func wantLedger(t *testing.T, o outcome, calls []fakegpu.Call) fakegpu.Truth {
	t.Helper()
	truth := fakegpu.Total(calls)
	got := fakegpu.Truth{
		Alloc:  fakegpu.Amount{Bytes: o.sum(t, "gpu_alloc_bytes"), Objects: o.sum(t, "gpu_alloc_objects")},
		Failed: fakegpu.Amount{Bytes: o.sum(t, "gpu_failed_bytes"), Objects: o.sum(t, "gpu_failed_objects")},
		InUse:  fakegpu.Amount{Bytes: o.sum(t, "gpu_inuse_bytes"), Objects: o.sum(t, "gpu_inuse_objects")},
	}
	// When it ends all processes are gone, and they hold nothing.
	want := fakegpu.Truth{Alloc: truth.Alloc, Failed: truth.Failed}
	if got != want {
		t.Errorf("the profile has %+v, the ledger %+v; by class %+v", got, want, fakegpu.Sum(calls))
	}
	if truth.Alloc.Objects == 0 {
		t.Error("the workload allocated nothing")
	}
	return truth
}

// wantWhole checks that no stack has a remark, such as that it is truncated.
func wantWhole(t *testing.T, o outcome) {
	t.Helper()
	for _, s := range o.profile.Sample {
		for _, f := range frames(s) {
			if strings.HasPrefix(f.Function, "[") {
				t.Errorf("a stack has %s:%s", f.Function, text(frames(s)))
			}
		}
	}
}
