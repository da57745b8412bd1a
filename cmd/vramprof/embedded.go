package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/agent"
	"github.com/vramprof/vramprof/agent/gpuapi"
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
	close(p.closed)
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "embedded", Net: "unix"} }

// driverLibraries finds driver libraries where loaders look for them, so that their probes are there before the first
// program maps one: in the folders of libraryPath, a value of LD_LIBRARY_PATH, and in those that distributions and
// container toolkits put them in.
func driverLibraries(libraryPath string) []string {
	folders := strings.Split(libraryPath, ":")
	folders = append(folders, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu",
		"/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib")
	var found []string
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		names, err := filepath.Glob(filepath.Join(folder, "lib*.so*"))
		if err != nil {
			continue // a pattern of special characters names no folder of a loader
		}
		for _, name := range names {
			if _, ok := gpuapi.DriverLibrary(path.Base(name)); ok {
				found = append(found, name)
			}
		}
	}
	return found
}
