package attach_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/agent/attach"
	"golang.org/x/sys/unix"
)

const preflightVariable = "VRAMPROF_TEST_PREFLIGHT"

// TestMain is also the program that TestPreflightNamesTheCapability runs with fewer capabilities.
func TestMain(m *testing.M) {
	for _, mechanism := range []attach.Mechanism{attach.UprobeMulti, attach.PerfEvent} {
		if os.Getenv(preflightVariable) != mechanism.String() {
			continue
		}
		_, err := attach.Detect()
		if err := errors.Join(err, attach.Preflight(mechanism)); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestPreflightNamesTheCapability is B41: each capability is taken away in turn.
func TestPreflightNamesTheCapability(t *testing.T) {
	for _, tt := range []struct {
		name      string
		mechanism attach.Mechanism
		drop      []uintptr
		want      []string // parts of the message, which is empty if there are none
	}{
		{"all", attach.UprobeMulti, nil, nil},
		{"all", attach.PerfEvent, nil, nil},
		{"no SYS_ADMIN", attach.UprobeMulti, []uintptr{unix.CAP_SYS_ADMIN}, nil},
		{"no SYS_ADMIN", attach.PerfEvent, []uintptr{unix.CAP_SYS_ADMIN}, []string{"probe this program", "missing CAP_SYS_ADMIN"}},
		{"no BPF", attach.UprobeMulti, []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_BPF}, []string{"load a BPF program", "missing CAP_BPF"}},
		{"no PERFMON", attach.UprobeMulti, []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_PERFMON}, []string{"detect uprobe_multi", "missing CAP_PERFMON"}},
		{"neither", attach.UprobeMulti, []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON}, []string{"missing CAP_BPF, CAP_PERFMON"}},
		{"no SYS_PTRACE", attach.UprobeMulti, []uintptr{unix.CAP_SYS_PTRACE}, []string{"look into processes", "missing CAP_SYS_PTRACE"}},
	} {
		t.Run(tt.mechanism.String()+" "+tt.name, func(t *testing.T) {
			out := preflightWithout(t, tt.mechanism, tt.drop)
			for _, part := range tt.want {
				if !strings.Contains(out, part) {
					t.Errorf("message %q, want one with %q", out, part)
				}
			}
			if tt.want == nil && out != "" {
				t.Errorf("message %q, want none", out)
			}
		})
	}
}

func preflightWithout(t *testing.T, m attach.Mechanism, drop []uintptr) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), preflightVariable+"="+m.String())
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		// What this thread drops from its bounding set, its child never gets; the thread ends with the goroutine.
		runtime.LockOSThread()
		for _, c := range drop {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				done <- result{err: err}
				return
			}
		}
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("run without capabilities (needs root): %v\n%s", r.err, r.out)
	}
	return string(r.out)
}
