package agent

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/profile"
	"github.com/vramprof/vramprof/agent/symbols"
)

// Source gives a symbolizer's client the objects of a store.
type Source struct{ Objects *objects.Store }

// WriteObject implements symbols.Source.
func (s Source) WriteObject(id string, w io.Writer) error {
	o, ok := s.Objects.ByID(id)
	if !ok {
		return fmt.Errorf("object %s was not opened here", id)
	}
	return o.Reduced(w)
}

// nameFrames asks the symbolizer for all places of many stacks at once.
func (a *Agent) nameFrames(ctx context.Context, stacks [][]frame) [][]profile.Frame {
	var native []symbols.Native
	var python []symbols.Python
	for _, s := range stacks {
		for _, f := range s {
			switch {
			case f.code != nil:
				python = append(python, symbols.Python{Code: f.code.symbol, Instruction: f.instruction})
			case f.object != nil:
				native = append(native, symbols.Native{BuildID: f.object.ID(), Object: f.object.Name, Address: f.address})
			}
		}
	}
	natives, pythons := a.options.Symbols.Resolve(ctx, native, python)
	out := make([][]profile.Frame, len(stacks))
	for i, s := range stacks {
		for _, f := range s {
			p := profile.Frame{Address: f.address}
			switch {
			case f.remark != "":
				p = remark(f.remark)
			case f.code != nil:
				p.Lines, pythons = lines(pythons[0]), pythons[1:]
			case f.object != nil:
				p.Mapping = profile.Mapping{File: f.object.Name, BuildID: f.object.ID()}
				p.Lines, natives = lines(natives[0]), natives[1:]
			default:
				p.Mapping.File = f.file
			}
			out[i] = append(out[i], p)
		}
	}
	return out
}

func lines(l symbols.Location) []profile.Line {
	out := make([]profile.Line, 0, len(l.Lines))
	for _, n := range l.Lines {
		out = append(out, profile.Line{Function: n.Function, SystemName: n.SystemName, File: n.File, Line: int64(n.Line), StartLine: int64(n.StartLine)})
	}
	return out
}

// monotonic is CLOCK_MONOTONIC, the clock of the kernel's events, in nanoseconds.
func monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // cannot fail with this clock
	}
	return uint64(t.Nano())
}
