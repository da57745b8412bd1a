package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// UploadObject implements vramprof.symbolizer.v1.SymbolizerService. An upload that nobody needs is read to its end, though
// not kept: over HTTP/1.1 a client that is still sending loses an early answer.
func (s *Server) UploadObject(_ context.Context, stream *connect.ClientStream[symbolizerv1.UploadObjectRequest]) (*connect.Response[symbolizerv1.UploadObjectResponse], error) {
	response, result, size, err := s.upload(stream)
	s.counters.uploaded(Object, result, size)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

func (s *Server) upload(stream *connect.ClientStream[symbolizerv1.UploadObjectRequest]) (_ *symbolizerv1.UploadObjectResponse, _ Result, size int64, _ error) {
	if !stream.Receive() {
		if err := stream.Err(); err != nil {
			return nil, Aborted, 0, err
		}
		return nil, Refused, 0, connect.NewError(connect.CodeInvalidArgument, errors.New("the upload has no message"))
	}
	object := stream.Msg().GetObject()
	build := object.GetBuildId()
	if err := s.checkBuild(build); err != nil {
		return nil, Refused, 0, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("object in the first message: build ID %q: %w", build, err))
	}
	known := s.objects.Complete(build)
	to := io.Discard
	var spool Spool
	if !known {
		var err error
		if spool, err = s.spool(); err != nil {
			return nil, Failed, 0, s.failure("store upload", err)
		}
		defer spool.Discard()
		to = spool
	}
	for first := true; first || stream.Receive(); first = false {
		if !first && stream.Msg().GetObject() != nil {
			return nil, Refused, size, connect.NewError(connect.CodeInvalidArgument, errors.New("a second object in one upload"))
		}
		data := stream.Msg().GetData()
		if size += int64(len(data)); size > s.limits.MaxObject {
			return nil, Refused, size, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("build %s is over the limit of %d bytes", build, s.limits.MaxObject))
		}
		if _, err := to.Write(data); err != nil {
			return nil, Failed, size, s.failure("store upload of "+build, err)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, Aborted, size, err
	}
	if known {
		return &symbolizerv1.UploadObjectResponse{AlreadyPresent: true}, Known, size, nil
	}
	symbols, stored, err := s.objects.Add(build, spool, size)
	if err != nil {
		result := Failed
		err := s.failure(fmt.Sprintf("upload of %s (%s)", object.GetName(), build), err)
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			result = Refused
		}
		return nil, result, size, err
	}
	if !stored {
		return &symbolizerv1.UploadObjectResponse{AlreadyPresent: true, Symbols: symbols}, Known, size, nil
	}
	s.logger.Info("stored symbols", "name", object.GetName(), "build", build, "symbols", symbols, "bytes", size)
	return &symbolizerv1.UploadObjectResponse{Symbols: symbols}, Stored, size, nil
}
