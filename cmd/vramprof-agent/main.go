// Command vramprof-agent is the node daemon: it profiles the GPU memory of every process of its machine and pushes to
// Pyroscope.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/push"
	"github.com/vramprof/vramprof/agent/symbols"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vramprof-agent:", err)
		os.Exit(1)
	}
}

// settings are the values of the flags.
type settings struct {
	pyroscope, symbolizer string
	user, passwordFile    string
	tokenFile, tenant     string
	headers               map[string]string
	interval              time.Duration
	gauges                bool
	labels                map[string]string
	libraries             []string
	listen                string
	logLevel, logFormat   string
	maxCounters, maxLive  uint32
	maxProcesses          uint32
}

func command() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "vramprof-agent",
		Short: "Profile the GPU memory of every process of this machine and push to Pyroscope",
		Long: `vramprof-agent sees every allocation of GPU memory on this machine, takes the whole stack, native and Python, and pushes
profiles to Pyroscope (or vramprof serve) every interval. Names come from a vramprof-symbolizer; while that is away,
frames are named by object and offset.

It needs Linux 5.17 and root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE (before Linux 6.6 CAP_SYS_ADMIN too).`,
		Args:         cobra.NoArgs,
		Version:      version,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), s) },
	}
	f := c.Flags()
	f.StringVar(&s.pyroscope, "pyroscope-url", "http://localhost:4040", "server to push to")
	f.StringVar(&s.symbolizer, "symbolizer-url", "http://localhost:8488", "vramprof-symbolizer to ask for names")
	f.StringVar(&s.user, "user", "", "of basic authentication at the server")
	f.StringVar(&s.passwordFile, "password-file", "", "file with its password")
	f.StringVar(&s.tokenFile, "token-file", "", "file with a bearer token for the server")
	f.StringVar(&s.tenant, "tenant", "", "sent as X-Scope-OrgID")
	f.StringToStringVar(&s.headers, "header", nil, "NAME=VALUE, sent with every push")
	f.DurationVar(&s.interval, "interval", 15*time.Second, "between profiles, aligned to the clock")
	f.BoolVar(&s.gauges, "gauges", true, "push what is in use and at the peak too; a server sums these, so look at one interval at a time")
	f.StringToStringVar(&s.labels, "label", nil, "NAME=VALUE, added to what this machine's processes say of themselves")
	f.StringArrayVar(&s.libraries, "driver-library", nil, "a driver library to attach to before any process maps it, besides those in the usual places")
	f.StringVar(&s.listen, "listen", "127.0.0.1:8489", "address for /metrics and /ready; empty for none")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.Uint32Var(&s.maxCounters, "max-counters", 0, "pairs of stack and process at a time, about 200 bytes of kernel memory each in use (default 262144)")
	f.Uint32Var(&s.maxLive, "max-live", 0, "allocations in use at a time, about 130 bytes each (default 1048576)")
	f.Uint32Var(&s.maxProcesses, "max-processes", 0, "processes with a GPU at a time, about 2 KiB each (default 16384)")
	return c
}

func run(ctx context.Context, s settings) error {
	log, err := newLogger(s.logLevel, s.logFormat)
	if err != nil {
		return err
	}
	if s.interval < time.Second {
		return fmt.Errorf("--interval %v: at least 1s", s.interval)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := pusher(s, log, registry)
	if err != nil {
		return err
	}
	store := objects.NewStore()
	names, err := symbols.New(symbols.Options{URL: s.symbolizer, Source: agent.Source{Objects: store}, Logger: log, Registerer: registry})
	if err != nil {
		return err
	}
	defer names.Close()
	a, err := agent.New(ctx, agent.Options{
		Logger: log, Symbols: names, Objects: store, Labels: s.labels,
		Libraries:   append(agent.UsualLibraries(os.Getenv("LD_LIBRARY_PATH")), s.libraries...),
		MaxCounters: s.maxCounters, MaxLive: s.maxLive, MaxProcesses: s.maxProcesses,
	})
	if err != nil {
		return err
	}
	registry.MustRegister(a.Collector())
	stopStatus, err := serveStatus(s.listen, registry, log)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	log.Info("profiling", "pyroscope", s.pyroscope, "symbolizer", s.symbolizer, "interval", s.interval)
	a.Loop(ctx, s.interval, func(w agent.Window) { a.Deliver(agent.Delivery{Client: client, NoGauges: !s.gauges}, w) })

	deliver, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(client.Close(deliver), a.Close(), stopStatus())
}

func pusher(s settings, log *slog.Logger, registry *prometheus.Registry) (*push.Client, error) {
	password, err := secret(s.passwordFile)
	if err != nil {
		return nil, err
	}
	token, err := secret(s.tokenFile)
	if err != nil {
		return nil, err
	}
	return push.New(push.Options{
		URL: s.pyroscope, User: s.user, Password: password, Token: token, Tenant: s.tenant, Headers: s.headers, Logger: log, Registerer: registry,
	})
}

// secret reads a file whose last newline is not part of what it holds.
func secret(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// serveStatus serves metrics and readiness until stop is called.
func serveStatus(listen string, registry *prometheus.Registry, log *slog.Logger) (stop func() error, err error) {
	if listen == "" {
		return func() error { return nil }, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ready") })
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; choose another address with --listen, or none with --listen=", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	return server.Close, nil
}

func newLogger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", format)
}
