package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/push"
	"github.com/vramprof/vramprof/devserver"
	"github.com/vramprof/vramprof/devserver/page"
	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
)

type serveOptions struct {
	listen    string
	dir       string
	agent     bool
	interval  time.Duration
	labels    map[string]string
	libraries []string
	retention time.Duration
	maxBytes  int64
}

func serveCommand() *cobra.Command {
	o := serveOptions{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Profile this machine and serve the profiles, with a page to explore them",
		Long: `One process and one port: an agent that profiles every process of this machine that uses a GPU, a symbolizer, a store,
Pyroscope's push and query API, and a page. It is for one machine. Past that, run vramprof-agent on each and let it push
to Pyroscope.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return serve(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:4040", "address to listen on; there is no authentication")
	f.StringVar(&o.dir, "data-dir", "", "folder for profiles and symbols (default /var/lib/vramprof, or vramprof in the user's cache)")
	f.BoolVar(&o.agent, "agent", true, "profile this machine; needs root")
	f.DurationVar(&o.interval, "interval", 15*time.Second, "between profiles, aligned to the clock")
	f.StringToStringVar(&o.labels, "label", nil, "NAME=VALUE, added to what this machine's processes say of themselves")
	f.StringArrayVar(&o.libraries, "driver-library", nil, "a driver library to attach to before any process maps it, besides those in the usual places")
	f.DurationVar(&o.retention, "retention", 31*24*time.Hour, "how long profiles are kept")
	f.Int64Var(&o.maxBytes, "max-bytes", 10<<30, "of profiles that are kept")
	return c
}

func serve(ctx context.Context, o serveOptions) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if o.interval < time.Second {
		return fmt.Errorf("--interval %v: at least 1s", o.interval)
	}
	if o.dir, err = dataFolder(o.dir); err != nil {
		return err
	}
	closing := closers{}
	defer func() { err = errors.Join(err, closing.close()) }()

	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return listenError(o.listen, err)
	}
	closing.add(ignoreClosed(listener.Close))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	symbolizer, err := embedSymbolizer(filepath.Join(o.dir, "symbols"), 3*time.Second, log, registry)
	if err != nil {
		return err
	}
	closing.add(symbolizer.Close)
	profiles, err := devserver.New(devserver.Options{
		Dir: filepath.Join(o.dir, "profiles"), Logger: log, Retention: o.retention, MaxBytes: o.maxBytes, Page: page.Handler(),
	})
	if err != nil {
		return err
	}
	closing.add(profiles.Close)

	mux := http.NewServeMux()
	mux.Handle("/"+symbolizerv1connect.SymbolizerServiceName+"/", symbolizer.service.Handler())
	mux.Handle("/metrics/agent", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/", profiles.Handler())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	within := newPipe()
	failed := make(chan error, 2)
	for _, l := range []net.Listener{listener, within} {
		go func() { failed <- server.Serve(l) }()
	}
	closing.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	})
	if o.agent {
		stop, err := startAgent(ctx, o, symbolizer, within, registry, log)
		if err != nil {
			return fmt.Errorf("profile this machine: %w; --agent=false serves without", err)
		}
		closing.add(stop)
	}
	log.Info("serving", "page", "http://"+listener.Addr().String()+"/", "data", o.dir, "agent", o.agent)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	}
}

// startAgent profiles this machine and pushes to the server in this process. stop delivers what is left.
func startAgent(ctx context.Context, o serveOptions, symbolizer *embedded, within *pipe, registry *prometheus.Registry, log *slog.Logger) (stop func() error, err error) {
	a, err := agent.New(ctx, agent.Options{
		Logger: log, Symbols: symbolizer.client, Objects: symbolizer.store, Labels: o.labels,
		Libraries: append(agent.UsualLibraries(os.Getenv("LD_LIBRARY_PATH")), o.libraries...),
	})
	if err != nil {
		return nil, err
	}
	client, err := push.New(push.Options{
		URL: "http://embedded", HTTP: &http.Client{Transport: &http.Transport{DialContext: within.dial}}, Logger: log, Registerer: registry,
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	registry.MustRegister(a.Collector())
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Loop(ctx, o.interval, func(w agent.Window) { a.Deliver(agent.Delivery{Client: client}, w) })
	}()
	return func() error {
		cancel()
		<-done
		deliver, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return errors.Join(client.Close(deliver), a.Close())
	}, nil
}

// dataFolder makes the folder for profiles and symbols.
func dataFolder(dir string) (string, error) {
	if dir == "" {
		dir = "/var/lib/vramprof"
		if os.Geteuid() != 0 {
			cache, err := os.UserCacheDir()
			if err != nil {
				return "", fmt.Errorf("folder for profiles: %w; name one with --data-dir", err)
			}
			dir = filepath.Join(cache, "vramprof")
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder for profiles: %w; name another with --data-dir", err)
	}
	return dir, nil
}

// listenError adds to an error of listening what to do about it.
func listenError(listen string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: another program has the port: stop it, or choose another with --listen", listen)
	}
	return fmt.Errorf("listen on %s: %w; choose an address with --listen", listen, err)
}

// closers are closed in the reverse of the order in which they were added.
type closers struct{ all []func() error }

func (c *closers) add(f func() error) { c.all = append(c.all, f) }

func (c *closers) close() error {
	var errs []error
	for i := len(c.all) - 1; i >= 0; i-- {
		errs = append(errs, c.all[i]())
	}
	return errors.Join(errs...)
}

// ignoreClosed is for a listener that its server has closed already.
func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}
