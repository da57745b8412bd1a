// Package devserver is Pyroscope's push and query API on one machine, in one process, over a directory: what `vramprof run`
// and `vramprof serve` bring along, so that a first flame graph needs no server. An agent, the page and profilecli talk to
// it as they do to the real one; there are no tenants and no authentication, so it belongs on a loopback address.
package devserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vramprof/vramprof/devserver/query"
	"github.com/vramprof/vramprof/devserver/store"
)

const (
	// maxPush bounds a decompressed Push message, as Pyroscope does (pkg/api/connect_options.go).
	maxPush = 256 << 20
	// maxQuery bounds a query; the longest is a few selectors.
	maxQuery = 1 << 20
)

// Options say where a server keeps its profiles and what it serves beside the API.
type Options struct {
	// Dir is the directory of the profiles, made if it is not there. One server at a time may use it.
	Dir string
	// Logger hears of pushes that were refused and of the store's losses. Nil discards.
	Logger *slog.Logger
	// Now is the clock that a profile's time is checked against. Nil is time.Now.
	Now func() time.Time
	// Retention is how long a profile is kept; 0 keeps it until MaxBytes.
	Retention time.Duration
	// MaxBytes bounds the directory; 0 does not.
	MaxBytes int64
	// Page answers every path that is not of the API. Nil is 404.
	Page http.Handler
}

// Server is an open store and its API. Its methods may be called from any goroutine.
type Server struct {
	store   *store.Store
	handler http.Handler
	closed  atomic.Bool
}

// New opens the store and builds the API over it. The caller closes the server.
func New(o Options) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Page == nil {
		o.Page = http.NotFoundHandler()
	}
	profiles, err := store.Open(store.Options{Dir: o.Dir, Retention: o.Retention, MaxBytes: o.MaxBytes, Now: o.Now, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("open the profiles in %s: %w", o.Dir, err)
	}
	s := &Server{store: profiles}
	s.handler = s.routes(o)
	return s, nil
}

// Handler serves push.v1.PusherService and querier.v1.QuerierService over Connect, Connect's JSON, gRPC and gRPC-Web, gRPC
// health and reflection, /ready, /metrics, and the page. Connect, JSON and gRPC-Web need HTTP/1.1; gRPC without TLS needs
// an http.Server whose Protocols allow unencrypted HTTP/2.
func (s *Server) Handler() http.Handler { return s.handler }

// Close closes the store; /ready says 503 from then on. Requests should have ended: see http.Server.Shutdown.
func (s *Server) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close the profiles: %w", err)
	}
	return nil
}

func (s *Server) routes(o Options) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	push := newPusher(s.store, o, registry)
	observed := connect.WithInterceptors(observe(registry))

	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(push, observed, connect.WithReadMaxBytes(maxPush)))
	mux.Handle(querierv1connect.NewQuerierServiceHandler(query.New(s.store), observed, connect.WithReadMaxBytes(maxQuery)))
	services := []string{pushv1connect.PusherServiceName, querierv1connect.QuerierServiceName}
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(services...)))
	reflector := grpcreflect.NewStaticReflector(append(services, grpchealth.HealthV1ServiceName)...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.HandleFunc("/ready", s.ready)
	mux.Handle("/", o.Page)
	return mux
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	answer := "ready\n"
	if s.closed.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = "closed\n"
	}
	_, _ = io.WriteString(w, answer) // whoever asked has gone
}

// observe counts calls and times them, by method and by how they ended.
func observe(registry prometheus.Registerer) connect.UnaryInterceptorFunc {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "vramprof_devserver_request_duration_seconds",
		Help:    "Calls of the API, by method and Connect code.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
	}, []string{"procedure", "code"})
	registry.MustRegister(duration)
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			began := time.Now()
			response, err := next(ctx, r)
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
			}
			duration.WithLabelValues(r.Spec().Procedure, code).Observe(time.Since(began).Seconds())
			return response, err
		}
	}
}
