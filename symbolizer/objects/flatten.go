package objects

import (
	"cmp"
	"slices"
	"sort"
)

// span is one symbol: the addresses that it covers, and what tells which of several to prefer.
type span struct {
	start, end uint64
	name       name
	rank       uint8 // less is better
	unsized    bool  // end is its section's until closeUnsized
}

// name is where a name is in the index: its offset, and its length in the lower 16 bits.
type name uint64

func makeName(offset uint64, length int) name { return name(offset<<16 | uint64(length)) }

func (n name) offset() int64 { return int64(n >> 16) }
func (n name) length() int   { return int(n & 0xffff) }

// entry is a stretch of addresses with one answer.
type entry struct {
	start, end uint64
	name       name
}

// flatten makes of symbols stretches that are sorted and do not overlap, and gives them to yield until it fails.
//
// Where sized symbols nest, the one that begins last wins: it is a part of the other with a name of its own. Of those at
// one address the best-ranked wins, then the one with the shorter name, then the first in its table. A symbol without a
// size reaches to the next symbol or its section's end, and only fills what no sized one covers: it is a label.
func flatten(spans []span, yield func(entry) error) error {
	slices.SortFunc(spans, func(a, b span) int {
		if c := cmp.Compare(a.start, b.start); c != 0 {
			return c
		}
		if a.unsized != b.unsized {
			return map[bool]int{true: 1, false: -1}[a.unsized]
		}
		better := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name.length(), b.name.length()), cmp.Compare(a.name.offset(), b.name.offset()))
		if a.unsized {
			return better // the first is taken
		}
		return -better // the last one lies on top
	})
	closeUnsized(spans)

	var open []span // those that enclose the place where we are, the outermost first
	at := uint64(0)
	emit := func(to uint64) error {
		for len(open) > 0 && at < to {
			top := open[len(open)-1]
			if end := min(top.end, to); end > at {
				if err := yield(entry{at, end, top.name}); err != nil {
					return err
				}
				at = end
			}
			if top.end > to {
				return nil
			}
			open = open[:len(open)-1]
		}
		return nil
	}
	for _, s := range spans {
		if s.end <= s.start || s.unsized && len(open) > 0 && open[0].end > s.start { // the outermost ends last
			continue
		}
		if err := emit(s.start); err != nil {
			return err
		}
		at = max(at, s.start)
		for len(open) > 0 && open[len(open)-1].end <= s.end { // nothing is left of it after the new one
			open = open[:len(open)-1]
		}
		open = append(open, s)
	}
	return emit(^uint64(0))
}

// closeUnsized ends symbols without a size at the next symbol. The spans are sorted by start.
func closeUnsized(spans []span) {
	for i := range spans {
		if spans[i].unsized {
			rest := spans[i:]
			if next := sort.Search(len(rest), func(n int) bool { return rest[n].start > rest[0].start }); next < len(rest) {
				spans[i].end = min(spans[i].end, rest[next].start)
			}
		}
	}
}
