package mappings

import (
	"cmp"
	"slices"
)

// merge drains every CPU's records and gives them on in the order of cause and effect, which for what one CPU wrote and
// for what happened to one process is the order of their times. It returns once nothing is left.
//
// A single look at all CPUs is not enough: a fork may be written to a ring that was just looked at, and the child's first
// mapping to one that is looked at next. But whatever caused a record was in its ring before that record was; so after
// a second look all causes of the first look's records are there, and everything up to the latest of their times can go.
// The second look's later records wait for a third. Nothing waits for a clock.
func merge(drain func([]record) []record, give func(record)) {
	pending := drain(nil)
	for len(pending) > 0 {
		horizon := uint64(0)
		for _, r := range pending {
			horizon = max(horizon, r.time)
		}
		pending = drain(pending)
		slices.SortStableFunc(pending, func(a, b record) int { return cmp.Compare(a.time, b.time) })
		n := 0
		for n < len(pending) && pending[n].time <= horizon {
			give(pending[n])
			n++
		}
		pending = slices.Delete(pending, 0, n)
	}
}
