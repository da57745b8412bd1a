package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// Symbolize implements vramprof.symbolizer.v1.SymbolizerService.
func (s *Server) Symbolize(ctx context.Context, r *connect.Request[symbolizerv1.SymbolizeRequest]) (*connect.Response[symbolizerv1.SymbolizeResponse], error) {
	if err := s.checkCount(len(r.Msg.GetNative()) + len(r.Msg.GetPython())); err != nil {
		return nil, err
	}
	a := answers{server: s, size: 0}
	out := &symbolizerv1.SymbolizeResponse{Native: a.native(ctx, r.Msg), Python: a.python(ctx, r.Msg)}
	if err := ctx.Err(); err != nil {
		return nil, connect.NewError(connect.CodeCanceled, err)
	}
	if a.size > maxAnswer {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the names of the answer are over %d bytes: ask for fewer locations at once", maxAnswer))
	}
	s.counters.symbolized(out)
	return connect.NewResponse(out), nil
}

// answers gathers what one call is answered.
type answers struct {
	server *Server
	size   int // bytes of names so far
}

// native answers object by object, so that each is looked up once.
func (a *answers) native(ctx context.Context, r *symbolizerv1.SymbolizeRequest) []*symbolizerv1.Location {
	asked, out := r.GetNative(), make([]*symbolizerv1.Location, len(r.GetNative()))
	byObject := group(len(r.GetObjects()), len(asked), func(i int) uint32 { return asked[i].GetObject() }, func(i int) {
		out[i] = invalid("object %d of %d", asked[i].GetObject(), len(r.GetObjects()))
	})
	for object, at := range byObject {
		if len(at) == 0 || a.size > maxAnswer || ctx.Err() != nil {
			continue
		}
		build := r.GetObjects()[object].GetBuildId()
		if err := a.server.checkBuild(build); err != nil {
			fill(out, at, invalid("object %d: %v", object, err))
			continue
		}
		addresses := make([]uint64, len(at))
		for i, n := range at {
			addresses[i] = asked[n].GetAddress()
		}
		err := a.server.objects.Symbolize(build, addresses, func(i int, lines []*symbolizerv1.Line) {
			if len(lines) == 0 {
				out[at[i]] = noSymbol
				return
			}
			out[at[i]] = &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_RESOLVED, Lines: lines}
			a.count(lines...)
		})
		if err != nil {
			fill(out, at, unresolved(err))
		}
	}
	return out
}

func (a *answers) python(ctx context.Context, r *symbolizerv1.SymbolizeRequest) []*symbolizerv1.Location {
	asked, out := r.GetPython(), make([]*symbolizerv1.Location, len(r.GetPython()))
	byCode := group(len(r.GetCodeDigests()), len(asked), func(i int) uint32 { return asked[i].GetCode() }, func(i int) {
		out[i] = invalid("code object %d of %d", asked[i].GetCode(), len(r.GetCodeDigests()))
	})
	for code, at := range byCode {
		if len(at) == 0 || a.size > maxAnswer || ctx.Err() != nil {
			continue
		}
		digest := r.GetCodeDigests()[code]
		if len(digest) != codedigest.Size {
			fill(out, at, invalid("digest %d has %d bytes, not %d", code, len(digest), codedigest.Size))
			continue
		}
		instructions := make([]uint32, len(at))
		for i, n := range at {
			instructions[i] = asked[n].GetInstruction()
		}
		err := a.server.codes.Symbolize(digest, instructions, func(i int, line *symbolizerv1.Line) {
			out[at[i]] = &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_RESOLVED, Lines: []*symbolizerv1.Line{line}}
			a.count(line)
		})
		if err != nil {
			fill(out, at, unresolved(err))
		}
	}
	return out
}

func (a *answers) count(lines ...*symbolizerv1.Line) {
	for _, l := range lines {
		a.size += len(l.GetFunction()) + len(l.GetSystemName()) + len(l.GetFile())
	}
}

// group gives, for each of groups, which of n items are in it, by their index. What is in none goes to outside.
func group(groups, n int, of func(int) uint32, outside func(int)) [][]int {
	out := make([][]int, groups)
	for i := range n {
		if g := of(i); int64(g) < int64(groups) {
			out[g] = append(out[g], i)
		} else {
			outside(i)
		}
	}
	return out
}

func fill(out []*symbolizerv1.Location, at []int, with *symbolizerv1.Location) {
	for _, i := range at {
		out[i] = with
	}
}

var (
	missing  = &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_MISSING, Reason: "not uploaded yet"}
	noSymbol = &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_NO_SYMBOL, Reason: "no symbol covers the address"}
)

func unresolved(err error) *symbolizerv1.Location {
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	return &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_UNUSABLE, Reason: err.Error()}
}

func invalid(format string, args ...any) *symbolizerv1.Location {
	return &symbolizerv1.Location{Status: symbolizerv1.Status_STATUS_INVALID, Reason: fmt.Sprintf(format, args...)}
}
