package profiles

import (
	"math"
	"strings"
	"testing"
)

func TestKeyTellsLabelSetsApart(t *testing.T) {
	sets := []Labels{nil, {{"", ""}}, {{"a", ""}}, {{"", "a"}}, {{"a", "b"}}, {{"ab", ""}}, {{"a", ""}, {"b", ""}}, {{"a", "b"}, {"c", "d"}}, {{"a", "b\x01c\x01d"}}}
	for i, a := range sets {
		for j, b := range sets {
			if (a.Key() == b.Key()) != (i == j) || (a.Compare(b) == 0) != (i == j) || a.Compare(b) != -b.Compare(a) {
				t.Errorf("%v and %v: keys %q and %q, compare %d", a, b, a.Key(), b.Key(), a.Compare(b))
			}
		}
	}
}

func TestGet(t *testing.T) {
	ls := Labels{{"a", "1"}, {"b", ""}}
	for name, want := range map[string]string{"a": "1", "b": ""} {
		if v, ok := ls.Get(name); !ok || v != want {
			t.Errorf("%s is %q, %v", name, v, ok)
		}
	}
	if v, ok := ls.Get("c"); ok || v != "" {
		t.Errorf("an absent label is %q, %v", v, ok)
	}
}

func TestCheck(t *testing.T) {
	one := []Labels{{{"a", ""}}}
	for _, row := range []struct {
		name string
		p    Profile
		says string // "" is good
	}{
		{"good", Profile{Series: one, Frames: make([]Frame, 1), Samples: []Sample{{Stack: []uint32{0, 0}, Values: []int64{1}}}}, ""},
		{"labels not sorted", Profile{Series: []Labels{{{"b", ""}, {"a", ""}}}}, "not sorted"},
		{"label twice", Profile{Series: []Labels{{{"a", ""}, {"a", ""}}}}, "are the same"},
		{"value missing", Profile{Series: one, Samples: []Sample{{}}}, "0 values for 1 series"},
		{"frame missing", Profile{Series: one, Samples: []Sample{{Stack: []uint32{0}, Values: []int64{1}}}}, "frame 0 of 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.p.Check()
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %q", err, row.says)
			}
		})
	}
}

func TestSumsStayWithinTheirType(t *testing.T) {
	for _, row := range []struct{ a, b, want int64 }{
		{1, 2, 3}, {-1, 2, 1}, {math.MaxInt64, 1, math.MaxInt64}, {math.MinInt64, -1, math.MinInt64}, {math.MinInt64, math.MaxInt64, -1},
	} {
		if got := Add(row.a, row.b); got != row.want {
			t.Errorf("%d and %d is %d, want %d", row.a, row.b, got, row.want)
		}
	}
	p := Profile{Samples: []Sample{{Values: []int64{1, math.MaxInt64}}, {Values: []int64{2, 5}}}}
	if p.Total(0) != 3 || p.Total(1) != math.MaxInt64 {
		t.Errorf("totals %d and %d", p.Total(0), p.Total(1))
	}
}
