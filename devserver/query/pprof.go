package query

import (
	"encoding/binary"
	"slices"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// merger sums samples by their stacks into one pprof profile that keeps functions, files, lines and objects. An inlined call
// is a location of its own, as the store has it.
type merger struct {
	profile   *googlev1.Profile
	strings   map[string]int64
	functions map[[3]string]uint64
	mappings  map[[2]string]uint64
	locations map[profiles.Frame]uint64
	stacks    map[string]*googlev1.Sample

	// Scratch of add.
	known []uint64 // by frame of the profile at hand: its location, 0 where not asked for yet
	ids   []uint64 // of the stack at hand
	key   []byte   // of the stack at hand
}

// newMerger begins a profile of one type. Its period is 1, as in what Pyroscope answers: the values are scaled already.
func newMerger(of *typesv1.ProfileType, start, end int64) *merger {
	m := &merger{
		strings:   map[string]int64{"": 0},
		functions: map[[3]string]uint64{},
		mappings:  map[[2]string]uint64{},
		locations: map[profiles.Frame]uint64{},
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
		for _, f := range s.Frames {
			if m.known[f] == 0 {
				m.known[f] = m.location(p.Frames[f])
			}
			m.ids, m.key = append(m.ids, m.known[f]), binary.AppendUvarint(m.key, m.known[f])
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

func (m *merger) location(f profiles.Frame) uint64 {
	if id, known := m.locations[f]; known {
		return id
	}
	id := uint64(len(m.profile.Location)) + 1
	m.locations[f] = id
	m.profile.Location = append(m.profile.Location, &googlev1.Location{
		Id: id, MappingId: m.mapping(f), Line: []*googlev1.Line{{FunctionId: m.function(f), Line: f.Line}},
	})
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
	name := nameOf(f)
	key := [3]string{name, f.SystemName, f.File}
	if id, known := m.functions[key]; known {
		return id
	}
	id := uint64(len(m.profile.Function)) + 1
	m.functions[key] = id
	m.profile.Function = append(m.profile.Function, &googlev1.Function{
		Id: id, Name: m.text(name), SystemName: m.text(f.SystemName), Filename: m.text(f.File),
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
