// Command vramprof-symbolizer is the symbolizer service: it keeps the symbols of native builds and Python code objects, and
// answers agents with functions, files and lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vramprof-symbolizer:", err)
		os.Exit(1)
	}
}

// settings are the values of the flags.
type settings struct {
	listen, dataDir     string
	logLevel, logFormat string
}

func command() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "vramprof-symbolizer",
		Short: "Turn the addresses that vramprof agents see into functions, files and lines",
		Long: `vramprof-symbolizer keeps the symbols of native builds and Python code objects that agents upload, each build once
for the whole fleet, and answers with functions, files and lines.

One port serves the API by Connect, gRPC, gRPC-Web and JSON over HTTP (HTTP/1.1 and HTTP/2 without TLS), gRPC health and
reflection, and Prometheus metrics at /metrics.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			logger, err := newLogger(c.ErrOrStderr(), s.logLevel, s.logFormat)
			if err != nil {
				return err
			}
			return serve(c.Context(), s, logger)
		},
	}
	c.Flags().StringVar(&s.listen, "listen", ":8488", "address to listen on")
	c.Flags().StringVar(&s.dataDir, "data-dir", "/var/lib/vramprof-symbolizer", "folder for symbols and code objects")
	c.Flags().StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	c.Flags().StringVar(&s.logFormat, "log-format", "text", "text or json")
	c.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "vramprof-symbolizer", version())
			return err
		},
	})
	return c
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", format)
}

// version is the module's version, and the commit where it was built from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value
		}
	}
	return v
}

// nextStep adds to an error of listening what to do about it.
func nextStep(listen string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: another program has the port: stop it, or choose another with --listen", listen)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: not allowed: choose a port from 1024 on with --listen", listen)
	}
	return fmt.Errorf("listen on %s: %w: choose an address with --listen, like :8488 or 127.0.0.1:8488", listen, err)
}
