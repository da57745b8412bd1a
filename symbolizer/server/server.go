// Package server answers vramprof.symbolizer.v1 over Connect, gRPC and gRPC-Web from what it is given to answer from. It
// checks requests and bounds them; it resolves and stores nothing itself.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"syscall"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// Objects are native builds. Symbolize gives fs.ErrNotExist for a build that is not here; Add gives fs.ErrInvalid for a
// file that cannot be taken.
type Objects interface {
	Wants(build string) bool
	Complete(build string) bool
	Add(build string, r io.ReaderAt, size int64) (symbols uint64, stored bool, err error)
	Symbolize(build string, addresses []uint64, answer func(i int, lines []*symbolizerv1.Line)) error
}

// Codes are Python code objects. Symbolize gives fs.ErrNotExist for one that is not here.
type Codes interface {
	Has(digest []byte) bool
	Add(codes []*symbolizerv1.PythonCode) (stored int, err error)
	Symbolize(digest []byte, instructions []uint32, answer func(i int, line *symbolizerv1.Line)) error
}

// Spool is a temporary file.
type Spool interface {
	io.Writer
	io.ReaderAt
	Discard()
}

// Limits bound what one call may ask for.
type Limits struct {
	// MaxObject is the largest upload, in bytes.
	MaxObject int64
	// MaxLocations is the most locations of one Symbolize, native and Python together, and the most names of one
	// FindMissing.
	MaxLocations int
}

// maxAnswer is the most bytes of names in one answer.
const maxAnswer = 64 << 20

// Server implements symbolizerv1connect.SymbolizerServiceHandler.
type Server struct {
	objects    Objects
	codes      Codes
	checkBuild func(string) error
	spool      func() (Spool, error)
	limits     Limits
	logger     *slog.Logger
	counters   counters
}

// New makes a server. checkBuild tells what is wrong with a build ID.
func New(objects Objects, codes Codes, checkBuild func(string) error, spool func() (Spool, error), limits Limits, logger *slog.Logger) *Server {
	return &Server{objects: objects, codes: codes, checkBuild: checkBuild, spool: spool, limits: limits, logger: logger}
}

// FindMissing implements vramprof.symbolizer.v1.SymbolizerService. What is malformed is never wanted.
func (s *Server) FindMissing(_ context.Context, r *connect.Request[symbolizerv1.FindMissingRequest]) (*connect.Response[symbolizerv1.FindMissingResponse], error) {
	if err := s.checkCount(len(r.Msg.GetObjects()) + len(r.Msg.GetCodeDigests())); err != nil {
		return nil, err
	}
	out := &symbolizerv1.FindMissingResponse{}
	for _, o := range r.Msg.GetObjects() {
		if s.checkBuild(o.GetBuildId()) == nil && s.objects.Wants(o.GetBuildId()) {
			out.BuildIds = append(out.BuildIds, o.GetBuildId())
		}
	}
	for _, d := range r.Msg.GetCodeDigests() {
		if len(d) == codedigest.Size && !s.codes.Has(d) {
			out.CodeDigests = append(out.CodeDigests, d)
		}
	}
	return connect.NewResponse(out), nil
}

// UploadCode implements vramprof.symbolizer.v1.SymbolizerService.
func (s *Server) UploadCode(_ context.Context, r *connect.Request[symbolizerv1.UploadCodeRequest]) (*connect.Response[symbolizerv1.UploadCodeResponse], error) {
	for i, c := range r.Msg.GetCodes() {
		if c.GetMinorVersion() == 0 || c.GetMinorVersion() > maxMinor {
			s.counters.uploaded(Code, Refused, 0)
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("code object %d (%q): minor_version is %d", i, c.GetQualname(), c.GetMinorVersion()))
		}
	}
	stored, err := s.codes.Add(r.Msg.GetCodes())
	if err != nil {
		s.counters.uploaded(Code, Failed, 0)
		return nil, s.failure("store code objects", err)
	}
	s.counters.uploadedCodes(stored, len(r.Msg.GetCodes())-stored)
	return connect.NewResponse(&symbolizerv1.UploadCodeResponse{Stored: uint32(stored)}), nil
}

// maxMinor is more than CPython 3 will ever have.
const maxMinor = 255

// failure makes an error of the service what its client should see, and logs what is not the client's fault.
func (s *Server) failure(step string, err error) error {
	switch {
	case errors.Is(err, fs.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		s.logger.Error(step, "error", err)
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s: %w", step, err))
	default:
		s.logger.Error(step, "error", err)
		return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: %w", step, err))
	}
}

func (s *Server) checkCount(n int) error {
	if n > s.limits.MaxLocations {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d in one request: ask for at most %d at once", n, s.limits.MaxLocations))
	}
	return nil
}
