package query

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// selected is a profile of stacks, each from its outermost frame inwards, as people read it.
func selected(values map[string]int64) *profiles.Selected {
	p := &profiles.Selected{}
	for path, value := range values {
		s := profiles.Stack{Value: value}
		for name := range strings.FieldsSeq(path) {
			s.Frames = append(s.Frames, uint32(len(p.Frames)))
			p.Frames = append(p.Frames, profiles.Frame{Function: name})
		}
		slices.Reverse(s.Frames)
		p.Stacks = append(p.Stacks, s)
	}
	return p
}

func levels(levels []*querierv1.Level) [][]int64 {
	var all [][]int64
	for _, level := range levels {
		all = append(all, level.Values)
	}
	return all
}

// The levels wanted here are drawn by hand from Pyroscope's format: offset from the end of the bar before, total, self, name.
func TestFlameGraph(t *testing.T) {
	for _, row := range []struct {
		name  string
		add   map[string]int64
		limit int
		want  *querierv1.FlameGraph
	}{
		{"nothing", nil, 10, &querierv1.FlameGraph{
			Names: []string{"total"}, Levels: []*querierv1.Level{{Values: []int64{0, 0, 0, 0}}},
		}},
		{"a function's own part is left of what it calls", map[string]int64{"main": 1, "main a": 2, "main b": 4, "main b a": 8}, 10, &querierv1.FlameGraph{
			Names: []string{"total", "main", "a", "b"}, Total: 15, MaxSelf: 8,
			Levels: []*querierv1.Level{
				{Values: []int64{0, 15, 0, 0}},
				{Values: []int64{0, 15, 1, 1}},
				{Values: []int64{1, 2, 2, 2, 0, 12, 4, 3}},
				{Values: []int64{7, 8, 8, 2}},
			},
		}},
		{"a gap between the bars of a level", map[string]int64{"a x": 1, "b": 10, "c x": 2}, 10, &querierv1.FlameGraph{
			Names: []string{"total", "a", "b", "c", "x"}, Total: 13, MaxSelf: 10,
			Levels: []*querierv1.Level{
				{Values: []int64{0, 13, 0, 0}},
				{Values: []int64{0, 1, 0, 1, 0, 10, 10, 2, 0, 2, 0, 3}},
				{Values: []int64{0, 1, 1, 4, 10, 2, 2, 4}},
			},
		}},
		{"a stack without frames", map[string]int64{"": 3, "a": 1}, 10, &querierv1.FlameGraph{
			Names: []string{"total", "a"}, Total: 4, MaxSelf: 3,
			Levels: []*querierv1.Level{{Values: []int64{0, 4, 3, 0}}, {Values: []int64{3, 1, 1, 1}}},
		}},
		{"recursion", map[string]int64{"f f f": 5}, 10, &querierv1.FlameGraph{
			Names: []string{"total", "f"}, Total: 5, MaxSelf: 5,
			Levels: []*querierv1.Level{{Values: []int64{0, 5, 0, 0}}, {Values: []int64{0, 5, 0, 1}}, {Values: []int64{0, 5, 0, 1}}, {Values: []int64{0, 5, 5, 1}}},
		}},
		{"the narrow ones become other", map[string]int64{"a": 100, "a x": 1, "b": 3, "c y": 2, "other": 50}, 2, &querierv1.FlameGraph{
			Names: []string{"total", "a", "other"}, Total: 156, MaxSelf: 100,
			Levels: []*querierv1.Level{
				{Values: []int64{0, 156, 0, 0}},
				{Values: []int64{0, 101, 100, 1, 0, 55, 55, 2}},
				{Values: []int64{100, 1, 1, 2}},
			},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			graph := &tree{}
			graph.add(selected(row.add), right)
			graph.prune(row.limit)
			got := flameGraph(&graph.root)
			if !reflect.DeepEqual(got.Names, row.want.Names) || !reflect.DeepEqual(levels(got.Levels), levels(row.want.Levels)) ||
				got.Total != row.want.Total || got.MaxSelf != row.want.MaxSelf {
				t.Errorf("got  %v\nwant %v", got, row.want)
			}
		})
	}
}

func TestFlameGraphDiff(t *testing.T) {
	graph := &tree{}
	graph.add(selected(map[string]int64{"a": 1, "a x": 3, "c": 4}), left)
	graph.add(selected(map[string]int64{"a": 2, "b y": 7, "c": 4}), right)
	graph.prune(10)
	got := flameGraphDiff(&graph.root)
	want := [][]int64{
		{0, 8, 0, 0, 13, 0, 0},
		{0, 4, 1, 0, 2, 2, 1, 0, 0, 0, 0, 7, 0, 2, 0, 4, 4, 0, 4, 4, 3},
		{1, 3, 3, 2, 0, 0, 4, 0, 0, 0, 0, 7, 7, 5},
	}
	if !reflect.DeepEqual(levels(got.Levels), want) || !reflect.DeepEqual(got.Names, []string{"total", "a", "b", "c", "x", "y"}) {
		t.Errorf("names %v, levels %v, want %v", got.Names, levels(got.Levels), want)
	}
	if got.LeftTicks != 8 || got.RightTicks != 13 || got.Total != 21 || got.MaxSelf != 7 {
		t.Errorf("left %d, right %d, total %d, greatest self %d", got.LeftTicks, got.RightTicks, got.Total, got.MaxSelf)
	}
}

// Whatever the limit: no more nodes than that and their others, every level within its parent's, and no total changes.
func TestPruneKeepsEveryTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []int{1, 2, 7, 50, 1000} {
		graph := &tree{}
		var want [2]int64
		for range 500 {
			var path strings.Builder
			for range random.IntN(6) {
				fmt.Fprintf(&path, " f%d", random.IntN(5))
			}
			side, value := random.IntN(2), random.Int64N(10)
			graph.add(selected(map[string]int64{path.String(): value}), side)
			want[side] += value
		}
		graph.prune(limit)
		var kept int
		var check func(n *node)
		check = func(n *node) {
			sum := n.self
			for child := n.first; child != nil; child = child.next {
				if child.text != "other" {
					kept++
				}
				sum[left] += child.total[left]
				sum[right] += child.total[right]
				check(child)
			}
			if sum != n.total {
				t.Errorf("limit %d: %s has %v and its parts %v", limit, n.text, n.total, sum)
			}
		}
		check(&graph.root)
		if graph.root.total != want || kept > limit {
			t.Errorf("limit %d: %d nodes, totals %v, want %v", limit, kept, graph.root.total, want)
		}
	}
}
