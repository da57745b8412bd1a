package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vramprof/vramprof/symbolizer"
)

const (
	// headerTimeout ends connections that never ask. Bodies have none: an upload may be slow.
	headerTimeout = 10 * time.Second
	idleTimeout   = 3 * time.Minute
	// graceful is how long calls that are served may go on after SIGTERM; Kubernetes kills after 30 s.
	graceful = 20 * time.Second
)

// serve runs the service until ctx ends, and then until its calls are done.
func serve(ctx context.Context, s settings, logger *slog.Logger) (err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return nextStep(s.listen, err)
	}
	service, err := symbolizer.New(symbolizer.Options{Dir: s.dataDir, Logger: logger})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, service.Close()) }()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{service}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/", service.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: mux, Protocols: protocols, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("serving", "address", listener.Addr().String(), "data", s.dataDir, "version", version())

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", s.listen, err)
	case <-ctx.Done():
	}
	logger.Info("stopping: no new calls are taken, those that are served may end", "at most", graceful)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		return errors.Join(fmt.Errorf("stop: some calls did not end within %v: %w", graceful, err), server.Close())
	}
	return nil
}
