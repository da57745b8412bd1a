package mappings

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// Records are written while the rings are looked at one after another. Each record is an effect of all before it, as when
// one process's steps move over the CPUs, so their order is the only right one.
func TestMergeKeepsCauseBeforeEffect(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		cpus, total := 1+random.IntN(6), random.IntN(60)
		rings := make([][]record, cpus)
		written := 0
		write := func(n int) {
			for ; n > 0 && written < total; n-- {
				cpu := random.IntN(cpus)
				rings[cpu] = append(rings[cpu], record{time: uint64(written / 2), tid: uint32(written)})
				written++
			}
		}
		var got []record
		for len(got) < total {
			write(1)
			merge(func(to []record) []record {
				for i := range rings {
					to = append(to, rings[i]...)
					rings[i] = nil
					write(random.IntN(4))
				}
				return to
			}, func(r record) { got = append(got, r) })
		}
		last := uint64(0)
		seen := map[uint32]bool{}
		for _, r := range got {
			if r.time < last || seen[r.tid] {
				t.Fatalf("%d CPUs: %+v comes after time %d, or twice", cpus, r, last)
			}
			last, seen[r.tid] = r.time, true
		}
		if len(seen) != total {
			t.Fatalf("%d of %d", len(seen), total)
		}
	}
}

func TestThreads(t *testing.T) {
	type step struct {
		what     string
		pid, tid uint32
		gone     bool
	}
	for name, steps := range map[string][]step{
		"one thread":                     {{"start", 7, 7, false}, {"end", 7, 7, true}},
		"first ends first":               {{"start", 7, 7, false}, {"start", 7, 8, false}, {"end", 7, 7, false}, {"end", 7, 8, true}},
		"exec by another thread":         {{"start", 7, 7, false}, {"start", 7, 8, false}, {"end", 7, 7, false}, {"exec", 7, 7, false}, {"end", 7, 7, true}},
		"number used again":              {{"start", 7, 7, false}, {"end", 7, 7, true}, {"start", 7, 7, false}, {"end", 7, 7, true}},
		"two processes":                  {{"start", 7, 7, false}, {"start", 9, 9, false}, {"end", 9, 9, true}, {"end", 7, 7, true}},
		"never heard of":                 {{"end", 7, 7, true}},
		"never heard of its others":      {{"end", 7, 8, false}, {"end", 7, 7, true}},
		"counted after its first ended":  {{"start", 7, 8, false}, {"end", 7, 7, false}, {"end", 7, 8, true}},
		"started before, told afterward": {{"start", 7, 7, false}, {"start", 7, 7, false}, {"end", 7, 7, true}},
	} {
		th := threads{}
		for i, s := range steps {
			gone := false
			switch s.what {
			case "start":
				th.start(s.pid, s.tid)
			case "exec":
				th.execute(s.pid)
			case "end":
				gone = th.end(s.pid, s.tid)
			}
			if gone != s.gone {
				t.Errorf("%s: step %d: gone %v", name, i, gone)
			}
		}
		if !reflect.DeepEqual(th, threads{}) {
			t.Errorf("%s leaves %v", name, th)
		}
	}
}
