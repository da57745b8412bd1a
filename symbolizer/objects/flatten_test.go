package objects

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const section = 1000 // end of the section of code

func sized(n uint64, start, end uint64, rank uint8) span {
	return span{start: start, end: end, name: makeName(n, 5), rank: rank}
}

func label(n uint64, start uint64) span {
	return span{start: start, end: section, name: makeName(n, 5), unsized: true}
}

func flat(t testing.TB, spans ...span) (out []entry) {
	t.Helper()
	if err := flatten(spans, func(e entry) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// B18: a symbol covers what it says, and no more.
func TestB18Flatten(t *testing.T) {
	for _, test := range []struct {
		name  string
		spans []span
		want  string
	}{
		{"nothing", nil, ""},
		{"a hole between", []span{sized(1, 10, 20, 0), sized(2, 30, 40, 0)}, "10-20:1 30-40:2"},
		{"side by side, not in order", []span{sized(2, 20, 30, 0), sized(1, 10, 20, 0)}, "10-20:1 20-30:2"},
		{"an unsized one ends at the next", []span{label(1, 10), sized(2, 30, 40, 0)}, "10-30:1 30-40:2"},
		{"an unsized one ends with the section", []span{sized(2, 30, 40, 0), label(1, 50)}, "30-40:2 50-1000:1"},
		{"unsized ones in a row", []span{label(2, 20), label(1, 10), label(3, 20)}, "10-20:1 20-1000:2"},
		{"a label within a function is no function", []span{sized(1, 10, 50, 0), label(2, 20)}, "10-50:1"},
		{"a label at a function's start", []span{label(2, 10), sized(1, 10, 50, 2)}, "10-50:1"},
		{"nested: the inner one, then the outer again", []span{sized(1, 10, 90, 0), sized(2, 20, 40, 0), sized(3, 25, 30, 0)}, "10-20:1 20-25:2 25-30:3 30-40:2 40-90:1"},
		{"overlapping", []span{sized(1, 10, 30, 0), sized(2, 20, 50, 0)}, "10-20:1 20-50:2"},
		{"aliases: the better rank", []span{sized(1, 10, 30, 4), sized(2, 10, 30, 0), sized(3, 10, 30, 9)}, "10-30:2"},
		{"aliases: what only the other covers is its", []span{sized(1, 10, 20, 0), sized(2, 10, 30, 4)}, "10-20:1 20-30:2"},
		{"aliases of one rank: the first", []span{sized(2, 10, 30, 0), sized(1, 10, 30, 0)}, "10-30:1"},
		{"the highest addresses", []span{sized(1, ^uint64(0)-9, ^uint64(0), 0)}, fmt.Sprintf("%d-%d:1", ^uint64(0)-9, ^uint64(0))},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, e := range flat(t, test.spans...) {
				got = append(got, fmt.Sprintf("%d-%d:%d", e.start, e.end, e.name.offset()))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s, want %s", strings.Join(got, " "), test.want)
			}
		})
	}
}

// Against the rule, read plainly for every address.
func TestFlattenEqualsTheRule(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 18))
	for range 3000 {
		var spans []span
		for n := range uint64(random.IntN(12)) {
			start := random.Uint64N(60)
			if random.IntN(4) == 0 {
				s := label(n, start)
				s.end = 100
				spans = append(spans, s)
			} else {
				spans = append(spans, sized(n, start, start+1+random.Uint64N(30), uint8(random.IntN(3))))
			}
		}
		for at := range uint64(110) {
			want := int64(-1)
			for i, s := range spans { // the last to begin of the sized ones, then the best
				if s.unsized || at < s.start || at >= s.end {
					continue
				}
				better := want < 0
				if !better {
					b := spans[want]
					better = s.start > b.start || s.start == b.start && s.rank < b.rank
				}
				if better {
					want = int64(i)
				}
			}
			if want < 0 { // else the label before it, if that is no part of a function and nothing is between
				for i, s := range spans {
					if s.unsized && s.start <= at && at < s.end && covers(spans, s.start) < 0 && !between(spans, s.start, at) &&
						(want < 0 || s.start > spans[want].start) {
						want = int64(i)
					}
				}
			}
			got := int64(-1)
			for _, e := range flat(t, append([]span(nil), spans...)...) {
				if e.start <= at && at < e.end {
					got = e.name.offset()
				}
			}
			if got != want {
				t.Fatalf("address %d of %+v: symbol %d, want %d", at, spans, got, want)
			}
		}
	}
}

func covers(spans []span, at uint64) int {
	for i, s := range spans {
		if !s.unsized && s.start <= at && at < s.end {
			return i
		}
	}
	return -1
}

func between(spans []span, from, to uint64) bool {
	for _, s := range spans {
		if s.start > from && s.start <= to {
			return true
		}
	}
	return false
}
