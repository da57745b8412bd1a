package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	profilev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
)

type topStack struct {
	bytes int64
	text  string
}

// shownFrames is how many frames of a stack are printed.
const shownFrames = 4

// topStacks gives the stacks of a profile by bytes, as the innermost frames that a reader knows: those with a file and
// line, which are Python's, or, without any, those of the program's own objects.
func topStacks(p *profilev1.Profile) ([]topStack, int64) {
	functions := map[uint64]*profilev1.Function{}
	for _, f := range p.GetFunction() {
		functions[f.GetId()] = f
	}
	locations := map[uint64]*profilev1.Location{}
	for _, l := range p.GetLocation() {
		locations[l.GetId()] = l
	}
	objects := map[uint64]string{}
	for _, m := range p.GetMapping() {
		objects[m.GetId()] = path.Base(p.GetStringTable()[m.GetFilename()])
	}
	bytes := map[string]int64{}
	total := int64(0)
	for _, s := range p.GetSample() {
		var python, native []string
		for _, id := range s.GetLocationId() {
			l := locations[id]
			for _, n := range l.GetLine() {
				f := functions[n.GetFunctionId()]
				name, file := p.GetStringTable()[f.GetName()], path.Base(p.GetStringTable()[f.GetFilename()])
				switch object := objects[l.GetMappingId()]; {
				case strings.HasSuffix(file, ".py"):
					python = append(python, fmt.Sprintf("%s (%s:%d)", name, file, n.GetLine()))
				case !strings.HasPrefix(object, "lib"):
					native = append(native, name)
				}
			}
		}
		if len(python) == 0 {
			python = native
		}
		text := strings.Join(python[:min(shownFrames, len(python))], " ← ")
		bytes[text] += s.GetValue()[0]
		total += s.GetValue()[0]
	}
	var out []topStack
	for text, n := range bytes {
		out = append(out, topStack{n, text})
	}
	slices.SortFunc(out, func(a, b topStack) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.text, b.text)) })
	return out, total
}
