package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/attach"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/profile"
	"github.com/vramprof/vramprof/agent/symbols"
	"github.com/vramprof/vramprof/symbolizer"
)

// emptyPair puts an entry and a return program that do nothing on cuMemAlloc_v2, at the function's first instruction or at
// the one that the agent chooses, and gives what detaches them.
func emptyPair(library string, first bool) (func() error, error) {
	mechanism, err := attach.Detect()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(library)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plan, err := attach.NewPlan(f, []string{"cuMemAlloc_v2"})
	if err != nil {
		return nil, err
	}
	if len(plan.Sites) != 1 || plan.Sites[0].ProbeOffset == 0 {
		return nil, fmt.Errorf("%s: no site after cuMemAlloc_v2's first instruction: %+v", library, plan)
	}
	site := plan.Sites[0]
	if first {
		site.ProbeOffset = 0
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Kprobe, AttachType: mechanism.AttachType(), License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load the empty program: %w", err)
	}
	a, err := attach.Attach(mechanism, f, []attach.Probe{{Site: site, Entry: program, Return: program}})
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	if failed := a.Failed(); len(failed) > 0 {
		return nil, errors.Join(failed[0].Err, a.Close(), program.Close())
	}
	return func() error { return errors.Join(a.Close(), program.Close()) }, nil
}

// profiler is the agent with a symbolizer of its own.
type profiler struct {
	agent   *agent.Agent
	service *symbolizer.Service
	server  *httptest.Server
	client  *symbols.Client
	start   time.Time
}

func startProfiler(ctx context.Context, dir, library string, noReuse bool) (*profiler, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	service, err := symbolizer.New(symbolizer.Options{Dir: dir, Logger: log})
	if err != nil {
		return nil, err
	}
	p := &profiler{service: service, server: httptest.NewServer(service.Handler()), start: time.Now()}
	store := objects.NewStore()
	p.client, err = symbols.New(symbols.Options{
		URL: p.server.URL, HTTP: p.server.Client(), Source: agent.Source{Objects: store}, Deadline: time.Minute, Logger: log,
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.agent, err = agent.New(ctx, agent.Options{
		Logger: log, Symbols: p.client, Objects: store, Libraries: []string{library}, NoReuse: noReuse,
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *profiler) Close() error {
	var errs []error
	if p.agent != nil {
		errs = append(errs, p.agent.Close())
	}
	if p.client != nil {
		p.client.Close()
	}
	p.server.Close()
	return errors.Join(append(errs, p.service.Close())...)
}

// warm lets a subject allocate until the kernel half unwinds it by itself. It waits between, since a process has only so
// many stacks that user space finishes, and afterwards those that it does not finish look the same.
func (p *profiler) warm(s *subject) error {
	for pause := 250 * time.Millisecond; pause <= 16*time.Second; pause *= 4 {
		time.Sleep(pause)
		before, err := p.statistics()
		if err != nil {
			return err
		}
		if _, err := s.measure(); err != nil {
			return err
		}
		after, err := p.statistics()
		if err != nil {
			return err
		}
		if after["stacks_copied"] == before["stacks_copied"] {
			return nil
		}
	}
	return fmt.Errorf("%s: its unwind rows are not loaded after 20 seconds: leave more of the machine to this", s.name)
}

func (p *profiler) statistics() (map[string]uint64, error) {
	_, statistics, err := p.agent.Health()
	return statistics, err
}

// check fails unless the agent has the whole stack of each subject: the cost of half a stack would be no measurement.
func (p *profiler) check(ctx context.Context, all []*subject) error {
	w, err := p.agent.Drain(ctx, p.start)
	if err != nil {
		return err
	}
	for _, s := range all {
		whole := []string{"cuMemAlloc_v2", "level_1"}
		if s.python > 0 {
			whole = append(whole, "python_10", "python_3", "main", "<module>")
		} else {
			whole = append(whole, fmt.Sprintf("level_%d", s.native-3)) // bench.c
		}
		var seen []string
		for _, series := range w.Series {
			if series.Labels["service_name"] != s.name {
				continue
			}
			for _, stack := range series.Stacks {
				seen = append(seen, names(stack))
			}
		}
		if !slices.ContainsFunc(seen, func(stack string) bool {
			return !strings.Contains(stack, "[truncated") && !slices.ContainsFunc(whole, func(f string) bool { return !strings.Contains(stack, ";"+f+";") })
		}) {
			return fmt.Errorf("%s: no stack with all of %q among %d, such as %q", s.name, whole, len(seen), seen[:min(1, len(seen))])
		}
	}
	return nil
}

func names(s profile.Stack) string {
	all := ";"
	for _, f := range s.Frames {
		for _, l := range f.Lines {
			all += l.Function + ";"
		}
	}
	return all
}
