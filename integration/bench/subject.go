package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/vramprof/vramprof/integration/fakegpu"
	"github.com/vramprof/vramprof/integration/pythons"
)

// calls is how many allocations a repeat times. A repeat makes twice as many, the first half untimed; four repeats must
// stay below the 4,096 stacks of a process that the kernel half copies for want of unwind rows (copies_per_account in
// c/state.h), since the number of copies is how warm tells.
const calls = 500

// subject is a running workload, which measures itself each time it is told to.
type subject struct {
	name           string
	native, python int
	command        *exec.Cmd
	in             io.WriteCloser
	out            *bufio.Scanner
}

// subjects starts a native workload at each depth and one under each
// interpreter that can have ten Python frames among 34 native ones, and waits until all have loaded the
// driver.
func subjects(ctx context.Context, d fakegpu.Driver) ([]*subject, error) {
	var all []*subject
	start := func(name string, native, python int, command ...string) error {
		s := &subject{name: name, native: native, python: python}
		command = append(command, "--depth", strconv.Itoa(native), "--calls", strconv.Itoa(calls), "--repeats", "1000000", "--batch", "--wait")
		s.command = exec.CommandContext(ctx, command[0], command[1:]...)
		s.command.Env = append(append(os.Environ(), d.Env("")...), "OTEL_SERVICE_NAME="+name)
		s.command.Stderr = os.Stderr
		var err error
		if s.in, err = s.command.StdinPipe(); err != nil {
			return err
		}
		out, err := s.command.StdoutPipe()
		if err != nil {
			return err
		}
		s.out = bufio.NewScanner(out)
		if err := s.command.Start(); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		all = append(all, s)
		return s.ready()
	}
	for _, depth := range []int{4, 34, 64} {
		if err := start(fmt.Sprintf("native %d", depth), depth, 0, d.Bench); err != nil {
			return all, err
		}
	}
	found, err := pythons.Find(ctx)
	if err != nil {
		return all, err
	}
	for _, p := range found {
		if p.Minor < 11 { // a Python frame has native frames of its own there: ten are more than 34
			continue
		}
		if err := start(fmt.Sprintf("native 34, Python 10: %s", p), 34, 10, p.Path, d.BenchPython); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (s *subject) ready() error {
	if !s.out.Scan() || s.out.Text() != "ready" {
		return fmt.Errorf("%s said %q instead of ready", s.name, s.out.Text())
	}
	return nil
}

// measure lets it allocate once more and gives the ns of one timed call.
func (s *subject) measure() (float64, error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	s.out.Scan()
	var result struct {
		Depth, Python int
		NS            float64
	}
	if err := json.Unmarshal(s.out.Bytes(), &result); err != nil {
		return 0, fmt.Errorf("%s said %q instead of a measurement: %w", s.name, s.out.Text(), err)
	}
	if result.Depth != s.native || result.Python != s.python {
		return 0, fmt.Errorf("%s has %d native and %d Python frames instead of %d and %d", s.name, result.Depth, result.Python, s.native, s.python)
	}
	return result.NS, s.ready()
}

// end lets it end by itself.
func (s *subject) end() error {
	if err := s.in.Close(); err != nil {
		return err
	}
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
