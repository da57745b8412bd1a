package profile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
)

// Options are what a profile says besides its samples.
type Options struct {
	// Time is the end of the interval, Duration its length.
	Time     time.Time
	Duration time.Duration
	// Period is the mean distance between samples in bytes; 1 if every allocation is one.
	Period int64
	// Comments say what is missing: events lost, stacks cut. They are kept by pprof files and not by Pyroscope.
	Comments []string
}

// Build makes one profile of the sample types of the given groups, or of all groups if none is given. Stacks that have
// none of the values are left out. The profile is as large as its stacks make it; Pieces makes profiles to push.
func Build(o Options, stacks []Stack, groups ...Group) *pprof.Profile {
	b := newBuilder(o, groups)
	return b.profile(b.gather(stacks), o.Time)
}

const (
	// maxSamples is max_profile_stacktrace_samples of Pyroscope.
	maxSamples = 16_000
	// maxBytes, uncompressed, is less than a tenant's burst of 2 MB (ingestion_burst_size_mb): with its labels, a larger
	// profile is refused for ever.
	maxBytes = 1_900_000
)

// Piece is a profile to push.
type Piece struct {
	// Time is that of the profile, in it also. No two pieces have the same: the server drops one of two profiles of a series
	// that do.
	Time time.Time
	// Pprof is the profile, not compressed.
	Pprof []byte
}

// Pieces makes profiles as Build does, each small enough for the server, whose sum is the whole. There is none if no stack
// has a value.
func Pieces(o Options, stacks []Stack, groups ...Group) ([]Piece, error) {
	b := newBuilder(o, groups)
	var pieces []Piece
	rest := [][]sample{b.gather(stacks)}
	for len(rest) > 0 {
		samples := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if len(samples) == 0 {
			continue
		}
		at := o.Time.Add(time.Duration(len(pieces)))
		var encoded bytes.Buffer
		if len(samples) <= maxSamples {
			if err := b.profile(samples, at).WriteUncompressed(&encoded); err != nil {
				return nil, fmt.Errorf("encode profile: %w", err)
			}
			if encoded.Len() <= maxBytes {
				pieces = append(pieces, Piece{Time: at, Pprof: encoded.Bytes()})
				continue
			}
		}
		if len(samples) > 1 {
			half := len(samples) / 2
			rest = append(rest, samples[half:], samples[:half])
			continue
		}
		// one stack of names without measure: its value counts more than its frames
		s := samples[0]
		if len(s.frames) == 1 {
			return nil, fmt.Errorf("encode profile: comments of over %d bytes: say less", maxBytes)
		}
		s.frames = b.places(cut(s.whole, len(s.frames)/2))
		rest = append(rest, []sample{s})
	}
	return pieces, nil
}

// sample is a stack as places, innermost first.
type sample struct {
	frames []*place
	whole  []Frame // before any was cut
	values Values
}

// place is a frame that samples share.
type place struct {
	Frame
	key string
}

type builder struct {
	options  Options
	types    []sampleType
	interned map[string]*place
}

func newBuilder(o Options, groups []Group) *builder {
	if len(groups) == 0 {
		groups = Groups()
	}
	b := &builder{options: o, interned: map[string]*place{}}
	for _, g := range groups {
		b.types = append(b.types, g.types()...)
	}
	return b
}

func (b *builder) places(frames []Frame) []*place {
	out := make([]*place, len(frames))
	for i, f := range frames {
		f = f.clean()
		key := f.key()
		if b.interned[key] == nil {
			b.interned[key] = &place{Frame: f, key: key}
		}
		out[i] = b.interned[key]
	}
	return out
}

// gather sorts the stacks and sums equal ones.
func (b *builder) gather(stacks []Stack) []sample {
	samples := make([]sample, 0, len(stacks))
	for _, s := range stacks {
		frames := s.Frames
		if len(frames) == 0 {
			frames = []Frame{{Lines: []Line{{Function: "[no stack]"}}}}
		}
		samples = append(samples, sample{b.places(cut(frames, maxFrames)), frames, s.Values})
	}
	byStack := func(s, t sample) int {
		return slices.CompareFunc(s.frames, t.frames, func(p, q *place) int {
			if p == q {
				return 0
			}
			return strings.Compare(p.key, q.key)
		})
	}
	slices.SortFunc(samples, byStack)
	out := samples[:0]
	for _, s := range samples {
		if n := len(out); n > 0 && byStack(out[n-1], s) == 0 {
			out[n-1].values = out[n-1].values.add(s.values)
			continue
		}
		out = append(out, s)
	}
	return slices.DeleteFunc(out, b.empty)
}

func (b *builder) empty(s sample) bool {
	return !slices.ContainsFunc(b.types, func(t sampleType) bool { return t.of(s.values) != 0 })
}

// profile encodes samples with what they refer to and nothing else.
func (b *builder) profile(samples []sample, at time.Time) *pprof.Profile {
	p := &pprof.Profile{
		TimeNanos: at.UnixNano(), DurationNanos: b.options.Duration.Nanoseconds(),
		PeriodType: &pprof.ValueType{Type: "gpu", Unit: "bytes"}, Period: max(b.options.Period, 1),
		DefaultSampleType: b.types[0].name,
	}
	for _, t := range b.types {
		p.SampleType = append(p.SampleType, &pprof.ValueType{Type: t.name, Unit: t.unit})
	}
	r := referred{profile: p, mappings: map[Mapping]*pprof.Mapping{}, functions: map[Line]*pprof.Function{}, locations: map[*place]*pprof.Location{}}
	negative := 0
	for _, s := range samples {
		out := &pprof.Sample{Location: make([]*pprof.Location, len(s.frames)), Value: make([]int64, len(b.types))}
		for i, t := range b.types {
			v := t.of(s.values)
			if v < 0 {
				negative++
			}
			out.Value[i] = max(v, 0)
		}
		for i, f := range slices.Backward(s.frames) { // pprof takes the first mapping for the program's
			out.Location[i] = r.location(f)
		}
		p.Sample = append(p.Sample, out)
	}
	for _, c := range b.options.Comments {
		p.Comments = append(p.Comments, text(c))
	}
	if negative > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("values below zero, shown as 0: %d", negative))
	}
	return p
}

// referred is what the samples of one profile refer to, in the order in which they first do.
type referred struct {
	profile   *pprof.Profile
	mappings  map[Mapping]*pprof.Mapping
	functions map[Line]*pprof.Function // by a Line without its line
	locations map[*place]*pprof.Location
}

func (r *referred) location(p *place) *pprof.Location {
	if l := r.locations[p]; l != nil {
		return l
	}
	l := &pprof.Location{ID: uint64(len(r.locations) + 1), Mapping: r.mapping(p), Address: p.Address}
	for _, line := range p.Lines {
		l.Line = append(l.Line, pprof.Line{Function: r.function(line), Line: line.Line})
	}
	r.locations[p] = l
	r.profile.Location = append(r.profile.Location, l)
	return l
}

func (r *referred) mapping(p *place) *pprof.Mapping {
	m := r.mappings[p.Mapping]
	if m == nil {
		// a mapping that does not say so sends its frames to the server's symbolizer, or out of the flame graph
		m = &pprof.Mapping{ID: uint64(len(r.mappings) + 1), File: p.Mapping.File, BuildID: p.Mapping.BuildID, HasFunctions: true}
		r.mappings[p.Mapping] = m
		r.profile.Mapping = append(r.profile.Mapping, m)
	}
	for _, l := range p.Lines {
		m.HasFilenames = m.HasFilenames || l.File != ""
		m.HasLineNumbers = m.HasLineNumbers || l.Line != 0
	}
	m.HasInlineFrames = m.HasInlineFrames || len(p.Lines) > 1
	return m
}

func (r *referred) function(l Line) *pprof.Function {
	l.Line = 0
	f := r.functions[l]
	if f == nil {
		f = &pprof.Function{ID: uint64(len(r.functions) + 1), Name: l.Function, SystemName: l.SystemName, Filename: l.File, StartLine: l.StartLine}
		r.functions[l] = f
		r.profile.Function = append(r.profile.Function, f)
	}
	return f
}
