package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/profile"
)

type runOptions struct {
	output  string
	format  string
	top     int
	quiet   bool
	verbose bool
}

func runCommand() *cobra.Command {
	o := runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Profile a command and its children, from the first allocation to the end",
		Long: `Runs a command and profiles the GPU memory that it and its children allocate, from their first allocation to the
command's end. At the end it prints who allocated most, on standard error, or writes it as JSON to standard output after
what the command wrote there. The exit status is the command's; 128 and the signal's number if a signal ended it; 126 or
127 if it could not be started; 125 if profiling itself failed.`,
		Example: `  sudo vramprof run -- python3 train.py
  sudo vramprof run -o mem.pb.gz -- ./server && go tool pprof -top -sample_index=gpu_peak_bytes mem.pb.gz`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.format != "text" && o.format != "json" {
				return fmt.Errorf("--format %q: it is text or json", o.format)
			}
			return run(c.Context(), o, args)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&o.output, "output", "o", "", "write all stacks to this file, as pprof")
	f.StringVar(&o.format, "format", "text", "of the summary: text or json")
	f.IntVar(&o.top, "top", 10, "lines of the summary in text")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no summary")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what is attached and what is not understood")
	return c
}

// selfFailed is the status for a failure of the profiler rather than of the command, as env and timeout use it.
const selfFailed = 125

func run(ctx context.Context, o runOptions, command []string) error {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	fail := func(err error) error {
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		return exitStatus(selfFailed)
	}
	var output *os.File
	if o.output != "" { // before the command runs for hours
		var err error
		if output, err = os.Create(o.output); err != nil {
			return fail(fmt.Errorf("create the output: %w", err))
		}
		defer output.Close()
	}
	// Orphans of the command become our children, and so stay below us, which is how the kernel half knows them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(fmt.Errorf("become the reaper of the command's children: %w", err))
	}
	dir, err := symbolFolder()
	if err != nil {
		return fail(err)
	}
	symbolizer, err := embedSymbolizer(dir, time.Minute, log, prometheus.NewRegistry())
	if err != nil {
		return fail(err)
	}
	defer symbolizer.Close()
	a, err := agent.New(ctx, agent.Options{
		Logger: log, Symbols: symbolizer.client, Objects: symbolizer.store, OnlyBelow: uint32(os.Getpid()),
		Libraries: agent.UsualLibraries(os.Getenv("LD_LIBRARY_PATH")),
	})
	if err != nil {
		return fail(err)
	}
	defer a.Close()

	start := time.Now()
	status := execute(command)
	window, err := a.Drain(context.WithoutCancel(ctx), start)
	if err != nil {
		return fail(fmt.Errorf("read the profile: %w", err))
	}
	var stacks []profile.Stack
	for _, s := range window.Series {
		stacks = append(stacks, s.Stacks...)
	}
	p := profile.Build(profile.Options{Time: window.End, Duration: window.End.Sub(start), Period: 1, Comments: window.Comments}, stacks, profile.Groups()...)
	if output != nil {
		if err := errors.Join(p.Write(output), output.Close()); err != nil {
			return fail(fmt.Errorf("write %s: %w", o.output, err))
		}
	}
	if !o.quiet {
		r := newReport(p, command, status, window.End.Sub(start))
		if o.format == "json" {
			err = r.writeJSON(os.Stdout)
		} else {
			err = r.writeText(os.Stderr, o.top)
		}
		if err != nil {
			return fail(fmt.Errorf("print the summary: %w", err))
		}
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// execute runs a command with our standard streams and gives its status as a shell would. Signals for us are the
// command's: those of the terminal reach it anyway, the others are passed on.
func execute(command []string) int {
	c := exec.Command(command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := c.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127
		}
		return 126
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGINT && s != syscall.SIGQUIT {
					_ = c.Process.Signal(s) // it may be gone
				}
			case <-done:
				return
			}
		}
	}()
	err := c.Wait()
	close(done)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			return 128 + int(w.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "vramprof: wait for the command:", err)
		return selfFailed
	}
	return 0
}

// symbolFolder is where `run` keeps symbols from one time to the next.
func symbolFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil { // no home: a folder of this boot's
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "vramprof", "symbols")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("folder for symbols: %w; set XDG_CACHE_HOME to one that can be written", err)
	}
	return dir, nil
}
