package ingest

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"

	"github.com/vramprof/vramprof/devserver/store"
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
	mappings, functions, locations := map[uint64]bool{0: true}, map[uint64]bool{}, map[uint64]bool{}
	for _, m := range p.Mapping {
		if mappings[m.Id] {
			return refuse(ReasonMalformed, "mapping ID %d is 0 or there twice", m.Id)
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
		if !mappings[l.MappingId] {
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
	types := map[[2]string]bool{}
	for i, t := range p.SampleType {
		if !inTable(t.Type, t.Unit) {
			return refuse(ReasonMalformed, "sample type %d refers to a string that is not in the table", i)
		}
		name := [2]string{p.StringTable[t.Type], p.StringTable[t.Unit]}
		if strings.Contains(name[0], "-") {
			return refuse(ReasonSampleType, "sample type %q has a '-': use an underscore", name[0])
		}
		if types[name] {
			return refuse(ReasonMalformed, "sample type %q in %q is there twice", name[0], name[1])
		}
		types[name] = true
	}
	return nil
}

// stacks turns location IDs into frames, equal stacks into one.
type stacks struct {
	frames map[uint64][]store.Frame
	known  map[string][]store.Frame
	total  int
}

// maxFileName is Linux's NAME_MAX. It keeps a long path from being repeated for
// every location without symbols.
const maxFileName = 255

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
	x := &stacks{frames: map[uint64][]store.Frame{}, known: map[string][]store.Frame{}}
	for _, l := range p.Location {
		m := mappings[l.MappingId] // nil without a mapping: its strings are then empty
		object, buildID := text(m.GetFilename()), text(m.GetBuildId())
		for _, line := range l.Line {
			f := functions[line.FunctionId]
			frame := store.Frame{
				Function: text(f.Name), SystemName: text(f.SystemName), File: text(f.Filename),
				Line: line.Line, Mapping: object, BuildID: buildID,
			}
			if frame.Function == "" {
				frame.Function = frame.SystemName
			}
			x.frames[l.Id] = append(x.frames[l.Id], frame)
		}
		if len(l.Line) == 0 { // no symbols: as the server shows it, object and address
			name := "unknown"
			if object != "" {
				name = path.Base(object)
				name = strings.ToValidUTF8(name[:min(len(name), maxFileName)], "")
			}
			x.frames[l.Id] = []store.Frame{{Function: fmt.Sprintf("%s!0x%x", name, l.Address), Mapping: object, BuildID: buildID}}
		}
	}
	return x
}

// of returns the stack of locations, innermost first, and a string that tells it
// from any other.
func (x *stacks) of(locations []uint64) (string, []store.Frame, error) {
	locations = locations[max(0, len(locations)-MaxDepth):]
	var key []byte
	total := 0
	for _, l := range locations {
		key = binary.AppendUvarint(key, l)
		total += len(x.frames[l])
	}
	id := string(key)
	if stack, ok := x.known[id]; ok {
		return id, stack, nil
	}
	if x.total += total; x.total > maxFrames {
		return "", nil, refuse(ReasonTooManyFrames, "stacks of the profile have over %d frames together: push it in parts", maxFrames)
	}
	stack := make([]store.Frame, 0, total)
	for _, l := range locations {
		stack = append(stack, x.frames[l]...)
	}
	x.known[id] = stack
	return id, stack, nil
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
