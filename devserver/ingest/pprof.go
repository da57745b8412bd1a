package ingest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// check refuses a profile whose parts do not fit together. After it, every index
// into the table of strings and every ID that the samples use is good.
func check(p *googlev1.Profile) error {
	if len(p.Sample) > MaxSamples {
		return refuse(ReasonTooManySamples, "profile has %d samples, limit %d: push it in parts", len(p.Sample), MaxSamples)
	}
	if len(p.StringTable) == 0 || p.StringTable[0] != "" {
		return refuse(ReasonMalformed, "string 0 of the profile is not empty")
	}
	for i, s := range p.StringTable {
		if !utf8.ValidString(s) {
			return refuse(ReasonInvalidUTF8, "string %d of the profile, %.80q, is not UTF-8: clean names before they are sent", i, s)
		}
		if len(s) > maxSymbol { // the server keeps the end; a rune cut in two goes
			p.StringTable[i] = strings.ToValidUTF8(s[len(s)-maxSymbol:], "")
		}
	}
	inTable := func(indexes ...int64) bool {
		for _, i := range indexes {
			if i < 0 || i >= int64(len(p.StringTable)) {
				return false
			}
		}
		return true
	}
	if !inTable(p.GetPeriodType().GetType(), p.GetPeriodType().GetUnit()) {
		return refuse(ReasonMalformed, "period type refers to a string that is not in the table")
	}
	if err := checkTypes(p, inTable); err != nil {
		return err
	}
	mappings, functions, locations := map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	for _, m := range p.Mapping {
		if mappings[m.Id] {
			return refuse(ReasonMalformed, "mapping ID %d is there twice", m.Id)
		}
		mappings[m.Id] = true
		if !inTable(m.Filename, m.BuildId) {
			return refuse(ReasonMalformed, "mapping %d refers to a string that is not in the table", m.Id)
		}
	}
	for _, f := range p.Function {
		if f.Id == 0 || functions[f.Id] {
			return refuse(ReasonMalformed, "function ID %d is 0 or there twice", f.Id)
		}
		functions[f.Id] = true
		if !inTable(f.Name, f.SystemName, f.Filename) {
			return refuse(ReasonMalformed, "function %d refers to a string that is not in the table", f.Id)
		}
	}
	for _, l := range p.Location {
		if l.Id == 0 || locations[l.Id] {
			return refuse(ReasonMalformed, "location ID %d is 0 or there twice", l.Id)
		}
		locations[l.Id] = true
		if l.MappingId != 0 && !mappings[l.MappingId] {
			return refuse(ReasonMalformed, "location %d refers to mapping %d, which is not in the profile", l.Id, l.MappingId)
		}
		for _, line := range l.Line {
			if !functions[line.FunctionId] {
				return refuse(ReasonMalformed, "location %d refers to function %d, which is not in the profile", l.Id, line.FunctionId)
			}
		}
	}
	for i, s := range p.Sample {
		if len(s.Value) != len(p.SampleType) {
			return refuse(ReasonMalformed, "sample %d has %d values for %d sample types", i, len(s.Value), len(p.SampleType))
		}
		for _, id := range s.LocationId {
			if !locations[id] {
				return refuse(ReasonMalformed, "sample %d refers to location %d, which is not in the profile", i, id)
			}
		}
		for _, l := range s.Label {
			if !inTable(l.Key, l.Str) {
				return refuse(ReasonMalformed, "a label of sample %d refers to a string that is not in the table", i)
			}
		}
	}
	return nil
}

func checkTypes(p *googlev1.Profile, inTable func(...int64) bool) error {
	if len(p.SampleType) == 0 {
		return refuse(ReasonMalformed, "profile has no sample type")
	}
	for i, t := range p.SampleType {
		if !inTable(t.Type, t.Unit) {
			return refuse(ReasonMalformed, "sample type %d refers to a string that is not in the table", i)
		}
		if name := p.StringTable[t.Type]; strings.Contains(name, "-") {
			return refuse(ReasonSampleType, "sample type %q has a '-': use an underscore", name)
		}
	}
	return nil
}

// stacks turns the locations of samples into frames.
type stacks struct {
	frames []profiles.Frame
	// of has the frames of each location, the innermost first.
	of    map[uint64][]uint32
	total int
}

// newStacks expects a profile that passed check.
func newStacks(p *googlev1.Profile) *stacks {
	text := func(i int64) string { return p.StringTable[i] }
	mappings, functions := map[uint64]*googlev1.Mapping{}, map[uint64]*googlev1.Function{}
	for _, m := range p.Mapping {
		mappings[m.Id] = m
	}
	for _, f := range p.Function {
		functions[f.Id] = f
	}
	x := &stacks{of: make(map[uint64][]uint32, len(p.Location))}
	places := make(map[profiles.Frame]uint32, len(p.Location))
	for _, l := range p.Location {
		m := mappings[l.MappingId] // nil without a mapping: its strings are then empty
		object, buildID := text(m.GetFilename()), text(m.GetBuildId())
		add := func(f profiles.Frame) {
			place, ok := places[f]
			if !ok {
				place = uint32(len(x.frames))
				places[f] = place
				x.frames = append(x.frames, f)
			}
			x.of[l.Id] = append(x.of[l.Id], place)
		}
		for i, line := range l.Line {
			f := functions[line.FunctionId]
			add(profiles.Frame{
				Function: cmp.Or(text(f.Name), text(f.SystemName)), SystemName: text(f.SystemName), File: text(f.Filename),
				StartLine: f.StartLine, Line: line.Line, Mapping: object, BuildID: buildID, Inlined: i < len(l.Line)-1,
			})
		}
		if len(l.Line) == 0 { // no symbols: as the server shows it, object and address
			name := "unknown"
			if object != "" {
				name = path.Base(object)
			}
			add(profiles.Frame{Function: fmt.Sprintf("%s!0x%x", name, l.Address), Mapping: object, BuildID: buildID})
		}
	}
	return x
}

// stack returns the frames of locations, innermost first.
func (x *stacks) stack(locations []uint64) ([]uint32, error) {
	locations = locations[max(0, len(locations)-MaxDepth):]
	n := 0
	for _, l := range locations {
		n += len(x.of[l])
	}
	if x.total += n; x.total > maxFrames {
		return nil, refuse(ReasonTooManyFrames, "stacks of the profile have over %d frames together: push it in parts", maxFrames)
	}
	stack := make([]uint32, 0, n)
	for _, l := range locations {
		stack = append(stack, x.of[l]...)
	}
	return stack, nil
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
