// Command bench measures what the agent adds to a driver call, from one run: the fake driver's cuMemAlloc_v2 alone, with
// empty programs on it, and with the agent below stacks of several depths, native and Python. It needs root.
//
// Every setting is measured in every round, since a machine's speed changes within minutes, and what is printed is the
// median. Only allocations are timed; their frees come later (bench.c).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

const (
	rounds  = 5
	repeats = 15 // of one subject in one round
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the subjects, however this ends
	dir, err := os.MkdirTemp("", "vramprof-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	driver, err := fakegpu.Build(ctx, dir)
	if err != nil {
		return err
	}
	all, err := subjects(ctx, driver)
	if err != nil {
		return err
	}
	m := measurements{}
	for range rounds {
		if err := m.round(ctx, dir, driver.Library, all); err != nil {
			return err
		}
	}
	for _, s := range all {
		if err := s.end(); err != nil {
			return err
		}
	}
	return m.print(os.Stdout, all)
}

// setting is what is attached to the driver.
type setting string

const (
	bare        setting = "no probe"
	firstPair   setting = "empty pair at +0"
	chosenPair  setting = "empty pair at the chosen offset"
	reusing     setting = "agent"
	walkingEach setting = "agent, every stack walked"
)

type cell struct {
	setting setting
	subject *subject
}

// measurements are ns per call, one for each repeat.
type measurements map[cell][]float64

func (m measurements) round(ctx context.Context, dir, library string, all []*subject) error {
	reference := all[1] // an empty program costs the same at any depth
	if err := m.take(bare, reference); err != nil {
		return err
	}
	for _, pair := range []setting{firstPair, chosenPair} {
		detach, err := emptyPair(library, pair == firstPair)
		if err != nil {
			return err
		}
		if err := errors.Join(m.take(pair, reference), detach()); err != nil {
			return err
		}
	}
	for _, s := range []setting{reusing, walkingEach} {
		p, err := startProfiler(ctx, dir, library, s == walkingEach)
		if err != nil {
			return err
		}
		if err := errors.Join(m.profiled(ctx, p, s, all), p.Close()); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (m measurements) profiled(ctx context.Context, p *profiler, at setting, all []*subject) error {
	for _, s := range all {
		if err := p.warm(s); err != nil {
			return err
		}
		before, err := p.statistics()
		if err != nil {
			return err
		}
		if err := m.take(at, s); err != nil {
			return err
		}
		after, err := p.statistics()
		if err != nil {
			return err
		}
		// the allocations of a repeat, those before it and the frees of both, and those of other programs on this machine
		if n := after["calls"] - before["calls"]; n < repeats*4*calls {
			return fmt.Errorf("%s: the agent saw %d calls, fewer than %d", s.name, n, repeats*4*calls)
		}
	}
	return p.check(ctx, all)
}

func (m measurements) take(at setting, s *subject) error {
	for range repeats {
		ns, err := s.measure()
		if err != nil {
			return err
		}
		m[cell{at, s}] = append(m[cell{at, s}], ns)
	}
	return nil
}

func (m measurements) median(at setting, s *subject) float64 {
	sorted := slices.Sorted(slices.Values(m[cell{at, s}]))
	return sorted[len(sorted)/2]
}
