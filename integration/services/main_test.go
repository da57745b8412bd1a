// Package services_test runs the three programs as the separate processes of a fleet, with workloads on the fake driver, and
// asks the server as Grafana does. What is in the answers is compared with what the driver itself wrote down. It needs root,
// since the agent loads programs into the kernel, and fails without.
package services_test

import (
	"context"
	"crypto/rand"
	"debug/elf"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/vramprof/vramprof/integration/fakegpu"
	"github.com/vramprof/vramprof/integration/processes"
)

var built struct {
	processes.Programs
	driver fakegpu.Driver
}

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "vramprof-services-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if built.Programs, err = processes.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if built.driver, err = fakegpu.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := ownBuilds(built.driver.Dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// ownBuilds gives the chain workload's files build IDs that no others have, so that no other test on this machine makes
// their names known.
func ownBuilds(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*chain*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := elf.Open(name)
		if err != nil {
			return fmt.Errorf("give %s a build ID: %w", name, err)
		}
		note := f.Section(".note.gnu.build-id")
		if err := f.Close(); err != nil || note == nil {
			return fmt.Errorf("give %s a build ID: it has no note for one: %w", name, err)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		const header = 16 // three sizes and "GNU\0"
		if _, err := rand.Read(content[note.Offset+header : note.Offset+note.Size]); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// unique is a service's name that no other run of these tests uses: an agent sees the whole machine.
func unique(service string) string { return fmt.Sprintf("%s-%d", service, os.Getpid()) }

// server is a `vramprof serve` without an agent.
type server struct {
	*processes.Process
	url, dir, listen string
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), listen: "127.0.0.1:0"}
	s.start(t)
	return s
}

// start starts the server, at the address and with the data that it had before.
func (s *server) start(t *testing.T) {
	t.Helper()
	s.Process = processes.Start(t, nil, built.Vramprof, "serve", "--agent=false", "--listen", s.listen, "--data-dir", s.dir)
	s.listen = s.Await(`page=http://([^/\s]+)`)
	s.url = "http://" + s.listen
}

type symbolizer struct {
	*processes.Process
	url, dir, listen string
}

func startSymbolizer(t *testing.T) *symbolizer {
	t.Helper()
	s := &symbolizer{dir: t.TempDir(), listen: "127.0.0.1:0"}
	s.start(t)
	return s
}

// start starts the symbolizer, at the address and with the data that it had before.
func (s *symbolizer) start(t *testing.T) {
	t.Helper()
	s.Process = processes.Start(t, nil, built.Symbolizer, "--listen", s.listen, "--data-dir", s.dir)
	s.listen = s.Await(`address=(\S+)`)
	s.url = "http://" + s.listen
}

type agent struct {
	*processes.Process
	url string
}

// startAgent starts an agent that knows the driver's library before any process has it, so that it misses no call of a
// process that calls at once, and waits until it profiles.
func startAgent(t *testing.T, server, symbolizer string, more ...string) agent {
	t.Helper()
	return startLateAgent(t, server, symbolizer, append(more, "--driver-library", built.driver.Library)...)
}

// startLateAgent starts an agent that finds the driver in the processes that have it, and waits until it profiles.
func startLateAgent(t *testing.T, server, symbolizer string, more ...string) agent {
	t.Helper()
	listen := freeAddress(t)
	a := agent{processes.Start(t, nil, built.Agent, append([]string{
		"--pyroscope-url", server, "--symbolizer-url", symbolizer, "--listen", listen}, more...)...), "http://" + listen}
	a.Await(`msg=profiling`)
	return a
}

// workload is a program on the fake driver that waits for a line before it allocates.
type workload struct {
	*processes.Process
	ledger string
}

func startWorkload(t *testing.T, service, version, program string, args ...string) workload {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "ledger")
	env := append(built.driver.Env(ledger), "OTEL_SERVICE_NAME="+unique(service), "OTEL_RESOURCE_ATTRIBUTES=service.version="+version)
	w := workload{processes.Start(t, env, program, args...), ledger}
	w.Await("^start$")
	return w
}

// startTrain starts the training loop for some steps, after which it waits again.
func startTrain(t *testing.T, service, version string) workload {
	t.Helper()
	return startWorkload(t, service, version, "/usr/bin/python3", built.driver.Train, "--wait", "--hold", "--steps", "3", "--version", version)
}

func startChain(t *testing.T, service string) workload {
	t.Helper()
	return startWorkload(t, service, "v1", built.driver.Chain, "--wait", "--hold")
}

func (w workload) calls(t *testing.T) []fakegpu.Call {
	t.Helper()
	calls, err := fakegpu.ReadLedger(w.ledger)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// until waits for a condition that another process brings about, of which nothing tells this one.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	const patience = time.Minute
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: no %s", patience, what)
		}
	}
}

// metric is the sum of the series of a process's metric whose labels an expression matches, 0 if it has none.
func metric(t *testing.T, url, name, labels string) float64 {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^`+name+`(?:\{`+labels+`\})? (\S+)$`).FindAllSubmatch(body, -1)
	sum := 0.0
	for _, m := range found {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}
