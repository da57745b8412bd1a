package query

import (
	"cmp"
	"maps"
	"slices"

	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// timeline sums profiles per step and per group. Times are in milliseconds.
type timeline struct {
	start, end, step int64
	groupBy          []string
	lines            map[string]*line
}

type line struct {
	labels []*typesv1.LabelPair
	sums   map[int64]int64 // by the end of the step
	total  int64
}

// add adds one value. The point at t holds what came in (t-step, t]; the points are at start, start+step and on, up to the end,
// so that the first is of the step before the window, with both ends of it, and what is left of the window after the last
// point is in none.
func (t *timeline) add(labels profiles.Labels, atNanos, value int64) {
	at := t.start
	if since := atNanos/millisecond - t.start; since > 0 {
		at += (since + t.step - 1) / t.step * t.step
	}
	if at > t.end {
		return
	}
	var group profiles.Labels
	for _, name := range t.groupBy {
		if value, present := labels.Get(name); present {
			group = append(group, profiles.Label{Name: name, Value: value})
		}
	}
	key := group.Key()
	l := t.lines[key]
	if l == nil {
		l = &line{labels: pairs(group), sums: map[int64]int64{}}
		if t.lines == nil {
			t.lines = map[string]*line{}
		}
		t.lines[key] = l
	}
	l.sums[at] += value
	l.total += value
}

// series are the lines, or as many as limit if it is positive, greatest first and then by their labels.
func (t *timeline) series(limit int64) []*typesv1.Series {
	var all []*typesv1.Series
	keys := slices.Sorted(maps.Keys(t.lines))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(t.lines[b].total, t.lines[a].total) })
	if limit > 0 {
		keys = keys[:min(int64(len(keys)), limit)]
	}
	for _, key := range keys {
		l := t.lines[key]
		series := &typesv1.Series{Labels: l.labels}
		for _, at := range slices.Sorted(maps.Keys(l.sums)) {
			series.Points = append(series.Points, &typesv1.Point{Timestamp: at, Value: float64(l.sums[at])})
		}
		all = append(all, series)
	}
	return all
}
