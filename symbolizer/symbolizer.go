// Package symbolizer is the service that turns addresses into names: it wires the stations that keep symbols and code
// objects to the one that serves them. `vramprof-symbolizer` runs it as a process, `vramprof run` inside its own.
package symbolizer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
	"github.com/vramprof/vramprof/symbolizer/objects"
	"github.com/vramprof/vramprof/symbolizer/python"
	"github.com/vramprof/vramprof/symbolizer/server"
	"github.com/vramprof/vramprof/symbolizer/store"
)

// Options say where a service keeps what it knows. All but Dir have defaults.
type Options struct {
	// Dir is the folder for symbols and code objects. It is made if it is not there. Several services may share it.
	Dir string
	// Logger is where it logs; slog.Default() if nil.
	Logger *slog.Logger
	// MaxObject is the largest upload of an object, in bytes; 1 GiB if 0.
	MaxObject int64
	// MaxLocations is the most locations of one call; 65,536 if 0.
	MaxLocations int
	// MaxMessage is the largest message of a client, in bytes; 32 MiB if 0.
	MaxMessage int
}

// Service is a running symbolizer. Its methods may be called from several goroutines.
type Service struct {
	options Options
	objects *objects.Objects
	codes   *python.Codes
	log     *store.Log
	server  *server.Server
}

// New opens the folder and makes the service. The caller closes it.
func New(o Options) (*Service, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxObject == 0 {
		o.MaxObject = 1 << 30
	}
	if o.MaxLocations == 0 {
		o.MaxLocations = 1 << 16
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 32 << 20
	}
	if o.Dir == "" {
		return nil, errors.New("open symbolizer: no folder given")
	}
	files, err := store.Open(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open symbolizer: %w", err)
	}
	s := &Service{options: o, objects: objects.New(files, time.Now)}
	s.codes, err = python.Open(func(visit func([]byte, uint64)) (*store.Log, error) {
		log, broken, err := files.Log("python", visit)
		if broken > 0 {
			o.Logger.Warn("some code objects on disk are damaged and left out: agents upload them again", "records", broken, "dir", o.Dir)
		}
		s.log = log
		return log, err
	})
	if err != nil {
		return nil, fmt.Errorf("open symbolizer: %w", err)
	}
	spool := func() (server.Spool, error) { return files.Temporary() }
	s.server = server.New(s.objects, s.codes, store.CheckBuildID, spool, server.Limits{MaxObject: o.MaxObject, MaxLocations: o.MaxLocations}, o.Logger)
	return s, nil
}

// Handler serves the API by Connect (so also JSON over HTTP), gRPC and gRPC-Web, with gRPC health and reflection. gRPC needs
// a server that speaks HTTP/2.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(symbolizerv1connect.NewSymbolizerServiceHandler(s.server, connect.WithReadMaxBytes(s.options.MaxMessage), connect.WithRecover(s.recovered)))
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(symbolizerv1connect.SymbolizerServiceName)))
	reflector := grpcreflect.NewStaticReflector(symbolizerv1connect.SymbolizerServiceName, grpchealth.HealthV1ServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	return mux
}

// Statistics are counts since the start, and what is there now.
type Statistics struct {
	// Locations answered, by kind ("native", "python") and status ("resolved", ...).
	Locations []LocationCount
	// Uploads by kind ("object", "code") and result ("stored", ...).
	Uploads []UploadCount
	// UploadedBytes of objects.
	UploadedBytes uint64
	// CacheHits and CacheMisses count native locations answered from memory and from disk.
	CacheHits, CacheMisses uint64
	// Codes is the number of code objects that are known.
	Codes int
}

// LocationCount counts locations of a kind and status.
type LocationCount struct {
	Kind, Status string
	Count        uint64
}

// UploadCount counts uploads of a kind and result.
type UploadCount struct {
	Kind, Result string
	Count        uint64
}

// Statistics gives the counts.
func (s *Service) Statistics() Statistics {
	var out Statistics
	out.UploadedBytes = s.server.Counts(func(k server.LocationKind, status symbolizerv1.Status, n uint64) {
		out.Locations = append(out.Locations, LocationCount{k.String(), statusName(status), n})
	}, func(k server.Kind, r server.Result, n uint64) {
		out.Uploads = append(out.Uploads, UploadCount{k.String(), r.String(), n})
	})
	out.CacheHits, out.CacheMisses = s.objects.Cache()
	out.Codes = s.codes.Len()
	return out
}

func statusName(s symbolizerv1.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

// recovered answers a call that a defect of ours brought down, so that it takes no other with it.
func (s *Service) recovered(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
	s.options.Logger.Error("call failed by a defect", "procedure", spec.Procedure, "cause", cause, "stack", string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New("the service has a defect: its log says more"))
}

// Close ends the service. Calls that are served meanwhile may fail.
func (s *Service) Close() error {
	s.objects.Close()
	return s.log.Close()
}
