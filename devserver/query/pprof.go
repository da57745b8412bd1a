package query

import (
	"encoding/binary"
	"slices"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// merger sums samples by their stacks into one pprof profile that keeps functions, files, lines, inlining and objects.
type merger struct {
	profile   *googlev1.Profile
	strings   map[string]int64
	functions map[profiles.Frame]uint64 // by what of a frame is its function's
	mappings  map[[2]string]uint64
	frames    map[profiles.Frame]uint64
	locations map[string]uint64 // by its frames
	stacks    map[string]*googlev1.Sample

	// Scratch of add.
	known []uint64 // by frame of the profile at hand: the location that it is alone, 0 where not asked for yet
	lines []byte   // of the location at hand
	ids   []uint64 // of the stack at hand
	key   []byte   // of the stack at hand
}

// newMerger begins a profile of one type. Its period is 1, as in what Pyroscope answers: the values are scaled already.
func newMerger(of *typesv1.ProfileType, start, end int64) *merger {
	m := &merger{
		strings:   map[string]int64{"": 0},
		functions: map[profiles.Frame]uint64{},
		mappings:  map[[2]string]uint64{},
		frames:    map[profiles.Frame]uint64{},
		locations: map[string]uint64{},
		stacks:    map[string]*googlev1.Sample{},
	}
	m.profile = &googlev1.Profile{StringTable: []string{""}}
	m.profile.SampleType = []*googlev1.ValueType{{Type: m.text(of.SampleType), Unit: m.text(of.SampleUnit)}}
	m.profile.PeriodType = &googlev1.ValueType{Type: m.text(of.PeriodType), Unit: m.text(of.PeriodUnit)}
	m.profile.Period = 1
	m.profile.TimeNanos = end * millisecond
	m.profile.DurationNanos = (end - start) * millisecond
	return m
}

// add adds a profile.
func (m *merger) add(p *profiles.Selected) {
	m.known = append(m.known[:0], make([]uint64, len(p.Frames))...)
	for _, s := range p.Stacks {
		m.ids, m.key = m.ids[:0], m.key[:0]
		for rest := s.Frames; len(rest) > 0; {
			n := 1
			for n < len(rest) && p.Frames[rest[n-1]].Inlined {
				n++
			}
			id := m.known[rest[0]]
			if id == 0 || n > 1 {
				id = m.location(p.Frames, rest[:n])
			}
			if n == 1 {
				m.known[rest[0]] = id
			}
			m.ids, m.key = append(m.ids, id), binary.AppendUvarint(m.key, id)
			rest = rest[n:]
		}
		sample := m.stacks[string(m.key)]
		if sample == nil {
			sample = &googlev1.Sample{LocationId: slices.Clone(m.ids), Value: []int64{0}}
			m.stacks[string(m.key)] = sample
			m.profile.Sample = append(m.profile.Sample, sample)
		}
		sample.Value[0] += s.Value
	}
}

// location is of one frame, after those that are inlined into it.
func (m *merger) location(frames []profiles.Frame, places []uint32) uint64 {
	m.lines = m.lines[:0]
	for _, place := range places {
		f := frames[place]
		if m.frames[f] == 0 {
			m.frames[f] = uint64(len(m.frames)) + 1
		}
		m.lines = binary.AppendUvarint(m.lines, m.frames[f])
	}
	if id, known := m.locations[string(m.lines)]; known {
		return id
	}
	id := uint64(len(m.profile.Location)) + 1
	m.locations[string(m.lines)] = id
	location := &googlev1.Location{Id: id, MappingId: m.mapping(frames[places[0]])}
	for _, place := range places {
		location.Line = append(location.Line, &googlev1.Line{FunctionId: m.function(frames[place]), Line: frames[place].Line})
	}
	m.profile.Location = append(m.profile.Location, location)
	return id
}

func (m *merger) mapping(f profiles.Frame) uint64 {
	key := [2]string{f.Mapping, f.BuildID}
	if key == [2]string{} {
		return 0
	}
	if id, known := m.mappings[key]; known {
		return id
	}
	id := uint64(len(m.profile.Mapping)) + 1
	m.mappings[key] = id
	m.profile.Mapping = append(m.profile.Mapping, &googlev1.Mapping{
		Id: id, Filename: m.text(f.Mapping), BuildId: m.text(f.BuildID),
		HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
	})
	return id
}

func (m *merger) function(f profiles.Frame) uint64 {
	key := profiles.Frame{Function: nameOf(f), SystemName: f.SystemName, File: f.File, StartLine: f.StartLine}
	if id, known := m.functions[key]; known {
		return id
	}
	id := uint64(len(m.profile.Function)) + 1
	m.functions[key] = id
	m.profile.Function = append(m.profile.Function, &googlev1.Function{
		Id: id, Name: m.text(key.Function), SystemName: m.text(f.SystemName), Filename: m.text(f.File), StartLine: f.StartLine,
	})
	return id
}

func (m *merger) text(s string) int64 {
	i, known := m.strings[s]
	if !known {
		i = int64(len(m.profile.StringTable))
		m.strings[s] = i
		m.profile.StringTable = append(m.profile.StringTable, s)
	}
	return i
}
