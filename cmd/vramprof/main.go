// Command vramprof profiles GPU memory: of one command (run), or of this machine with a page to explore it (serve).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "unknown"

func main() {
	root := &cobra.Command{
		Use:           "vramprof",
		Short:         "Profile GPU memory: every allocation, with its whole stack, native and Python",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.AddCommand(runCommand(), serveCommand())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := root.ExecuteContext(ctx)
	var status exitStatus
	switch {
	case errors.As(err, &status):
		os.Exit(int(status))
	case err != nil:
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		os.Exit(1)
	}
}

// exitStatus ends the program with the status of the command that it ran.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
