package profile

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	// maxFrames is the depth up to which Pyroscope keeps a stack; of a deeper one it drops the innermost frames, which are
	// the ones that allocate (pkg/validation/validate.go, max_profile_stacktrace_depth).
	maxFrames = 1000
	// maxName bounds a name or path in bytes. Pyroscope keeps 65,535 (max_profile_symbol_value_length).
	maxName = 16 << 10
	// maxLines bounds the calls that are inlined at one place: several times what compilers do.
	maxLines = 256
)

// noObject is the file of frames that are of none: the server takes no location without a mapping.
const noObject = "[no object]"

// cut takes frames out of the middle of a stack that has more than most, and leaves one that says how many: both ends are
// what a reader looks for.
func cut(frames []Frame, most int) []Frame {
	if len(frames) <= most {
		return frames
	}
	inner, outer := most/2, (most-1)/2
	gone := len(frames) - inner - outer
	out := make([]Frame, 0, most)
	out = append(out, frames[:inner]...)
	out = append(out, Frame{Lines: []Line{{Function: fmt.Sprintf("[... %d frames cut]", gone)}}})
	return append(out, frames[len(frames)-outer:]...)
}

// clean gives the frame as a profile may have it: with a file, with lines, with text that is UTF-8 and not too long.
func (f Frame) clean() Frame {
	out := Frame{Mapping: Mapping{File: text(f.Mapping.File), BuildID: text(strings.TrimPrefix(f.Mapping.BuildID, "gnu:"))}}
	if len(f.Lines) == 0 {
		name := "[unknown]"
		if out.Mapping.File != "" {
			name = fmt.Sprintf("%s+0x%x", path.Base(out.Mapping.File), f.Address)
		}
		out.Address = f.Address
		out.Lines = []Line{{Function: name}}
	}
	for _, l := range f.Lines[:min(len(f.Lines), maxLines)] {
		l.Function, l.SystemName, l.File = text(l.Function), text(l.SystemName), text(l.File)
		if l.Function == "" {
			l.Function = "[unnamed]"
		}
		if l.SystemName == "" {
			l.SystemName = l.Function
		}
		l.Line, l.StartLine = max(l.Line, 0), max(l.StartLine, 0)
		out.Lines = append(out.Lines, l)
	}
	if out.Mapping.File == "" {
		out.Mapping.File = noObject
	}
	return out
}

// key is the same for two clean frames if and only if they are the same place.
func (f Frame) key() string {
	b := field(field(nil, f.Mapping.File), f.Mapping.BuildID)
	b = binary.AppendUvarint(b, f.Address)
	for _, l := range f.Lines {
		b = field(field(field(b, l.Function), l.SystemName), l.File)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.Line)), uint64(l.StartLine))
	}
	return string(b)
}

func field(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// text makes a name from anywhere UTF-8 of at most maxName bytes. Of a longer one both ends stay: the one says what it is,
// the other tells it from its like.
func text(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxName {
		return s
	}
	const gap = "[...]"
	end, begin := (maxName-len(gap))/2, len(s)-(maxName-len(gap))/2
	for !utf8.RuneStart(s[end]) {
		end--
	}
	for !utf8.RuneStart(s[begin]) {
		begin++
	}
	return s[:end] + gap + s[begin:]
}
