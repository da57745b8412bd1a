package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/symbols"
	"github.com/vramprof/vramprof/symbolizer"
)

// embedded is a symbolizer in this process, with the client that the agent asks it by.
type embedded struct {
	service *symbolizer.Service
	server  *http.Server
	client  *symbols.Client
	store   *objects.Store
}

// embedSymbolizer starts one that keeps its files in dir. deadline bounds how long a drain waits for names.
func embedSymbolizer(dir string, deadline time.Duration, log *slog.Logger, registerer prometheus.Registerer) (*embedded, error) {
	service, err := symbolizer.New(symbolizer.Options{Dir: dir, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("symbolizer: %w", err)
	}
	pipe := newPipe()
	e := &embedded{service: service, server: &http.Server{Handler: service.Handler(), ReadHeaderTimeout: time.Minute}, store: objects.NewStore()}
	go func() {
		if err := e.server.Serve(pipe); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the embedded symbolizer ended", "error", err)
		}
	}()
	e.client, err = symbols.New(symbols.Options{
		URL: "http://embedded", HTTP: &http.Client{Transport: &http.Transport{DialContext: pipe.dial}},
		Source: agent.Source{Objects: e.store}, Deadline: deadline, Logger: log, Registerer: registerer,
	})
	if err != nil {
		return nil, errors.Join(err, e.server.Close(), service.Close())
	}
	return e, nil
}

func (e *embedded) Close() error {
	e.client.Close()
	return errors.Join(e.server.Close(), e.service.Close())
}

// pipe is a listener for connections within this process.
type pipe struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newPipe() *pipe { return &pipe{connections: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.connections <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "embedded", Net: "unix"} }
