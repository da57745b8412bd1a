package page_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/devserver/page"
)

// querier answers the page's calls from recorded profiles, by the rules of the real server: sums over the window, points at
// the end of their step and one step early, nothing where there is nothing. It keeps what it was asked.
type querier struct {
	encoding sync.Mutex // a merged profile shares parts with the recorded ones, and encoding writes to them
	querierv1connect.UnimplementedQuerierServiceHandler

	mu       sync.Mutex
	profiles []recorded
	fail     error
	merges   []*querierv1.SelectMergeStacktracesRequest
}

// handler is the page and its server on one origin.
func (q *querier) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", page.Handler())
	mux.Handle(querierv1connect.NewQuerierServiceHandler(q))
	return mux
}

func (q *querier) setFailure(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fail = err
}

func (q *querier) lastMerge(t *testing.T) *querierv1.SelectMergeStacktracesRequest {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.merges) == 0 {
		t.Fatal("the page asked for no flame graph")
	}
	return q.merges[len(q.merges)-1]
}

// asked is how many flame graphs were asked for.
func (q *querier) asked() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.merges)
}

func (q *querier) add(profiles []recorded) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.profiles = append(q.profiles, profiles...)
}

func typeIDs(p *profile.Profile) []string {
	var ids []string
	for _, t := range p.SampleType {
		ids = append(ids, strings.Join([]string{"gpu", t.Type, t.Unit, p.PeriodType.Type, p.PeriodType.Unit}, ":"))
	}
	return ids
}

var matcher = regexp.MustCompile(`(\w+)(!?=)("(?:[^"\\]|\\.)*")`)

// selected calls visit with each profile of the window that the selector matches and, if a type is named, has it.
func (q *querier) selected(selector, typeID string, start, end int64, visit func(p recorded, value int)) error {
	if selector == "" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("empty selector"))
	}
	q.mu.Lock()
	profiles := q.profiles
	q.mu.Unlock()
next:
	for _, p := range profiles {
		if ms := p.TimeNanos / 1e6; ms < start || ms > end {
			continue
		}
		for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
			want, err := strconv.Unquote(m[3])
			if err != nil {
				return connect.NewError(connect.CodeInvalidArgument, err)
			}
			if (p.labels[m[1]] == want) != (m[2] == "=") {
				continue next
			}
		}
		if value := slices.Index(typeIDs(p.Profile), typeID); value >= 0 || typeID == "" {
			visit(p, value)
		}
	}
	return nil
}

func (q *querier) ProfileTypes(_ context.Context, r *connect.Request[querierv1.ProfileTypesRequest]) (*connect.Response[querierv1.ProfileTypesResponse], error) {
	q.mu.Lock()
	fail := q.fail
	q.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	ids := map[string]bool{}
	err := q.selected("{}", "", r.Msg.Start, r.Msg.End, func(p recorded, _ int) {
		for _, id := range typeIDs(p.Profile) {
			ids[id] = true
		}
	})
	answer := &querierv1.ProfileTypesResponse{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		answer.ProfileTypes = append(answer.ProfileTypes, &typesv1.ProfileType{ID: id})
	}
	return connect.NewResponse(answer), err
}

func (q *querier) labels(matchers []string, start, end int64) (map[string]map[string]bool, error) {
	found := map[string]map[string]bool{}
	err := q.selected(cmp.Or(strings.Join(matchers, ","), "{}"), "", start, end, func(p recorded, _ int) {
		for name, value := range p.labels {
			if found[name] == nil {
				found[name] = map[string]bool{}
			}
			found[name][value] = true
		}
	})
	return found, err
}

func (q *querier) LabelNames(_ context.Context, r *connect.Request[typesv1.LabelNamesRequest]) (*connect.Response[typesv1.LabelNamesResponse], error) {
	found, err := q.labels(r.Msg.Matchers, r.Msg.Start, r.Msg.End)
	return connect.NewResponse(&typesv1.LabelNamesResponse{Names: append(slices.Sorted(maps.Keys(found)), "__profile_type__")}), err
}

func (q *querier) LabelValues(_ context.Context, r *connect.Request[typesv1.LabelValuesRequest]) (*connect.Response[typesv1.LabelValuesResponse], error) {
	found, err := q.labels(r.Msg.Matchers, r.Msg.Start, r.Msg.End)
	return connect.NewResponse(&typesv1.LabelValuesResponse{Names: slices.Sorted(maps.Keys(found[r.Msg.Name]))}), err
}

func (q *querier) Series(_ context.Context, r *connect.Request[querierv1.SeriesRequest]) (*connect.Response[querierv1.SeriesResponse], error) {
	answer := &querierv1.SeriesResponse{}
	err := q.selected("{}", "", r.Msg.Start, r.Msg.End, func(p recorded, _ int) {
		for _, id := range typeIDs(p.Profile) {
			set := &typesv1.Labels{}
			for _, name := range r.Msg.LabelNames {
				if value := cmp.Or(p.labels[name], map[string]string{"__profile_type__": id}[name]); value != "" {
					set.Labels = append(set.Labels, &typesv1.LabelPair{Name: name, Value: value})
				}
			}
			answer.LabelsSet = append(answer.LabelsSet, set)
		}
	})
	return connect.NewResponse(answer), err
}

func (q *querier) SelectSeries(_ context.Context, r *connect.Request[querierv1.SelectSeriesRequest]) (*connect.Response[querierv1.SelectSeriesResponse], error) {
	step := int64(r.Msg.Step * 1000)
	lines := map[string]map[int64]float64{}
	start := r.Msg.Start - step
	err := q.selected(r.Msg.LabelSelector, r.Msg.ProfileTypeID, start, r.Msg.End, func(p recorded, value int) {
		var group string
		if len(r.Msg.GroupBy) > 0 {
			group = p.labels[r.Msg.GroupBy[0]]
		}
		if lines[group] == nil {
			lines[group] = map[int64]float64{}
		}
		at := start + step*int64(math.Ceil(float64(p.TimeNanos/1e6-start)/float64(step)))
		for _, sample := range p.Sample {
			lines[group][at] += float64(sample.Value[value])
		}
	})
	answer := &querierv1.SelectSeriesResponse{}
	for group, points := range lines {
		series := &typesv1.Series{}
		if len(r.Msg.GroupBy) > 0 {
			series.Labels = []*typesv1.LabelPair{{Name: r.Msg.GroupBy[0], Value: group}}
		}
		for _, at := range slices.Sorted(maps.Keys(points)) {
			series.Points = append(series.Points, &typesv1.Point{Timestamp: at, Value: points[at]})
		}
		answer.Series = append(answer.Series, series)
	}
	return connect.NewResponse(answer), err
}

func (q *querier) SelectMergeStacktraces(_ context.Context, r *connect.Request[querierv1.SelectMergeStacktracesRequest]) (*connect.Response[querierv1.SelectMergeStacktracesResponse], error) {
	q.mu.Lock()
	q.merges = append(q.merges, r.Msg)
	q.mu.Unlock()
	root := &treeNode{}
	err := q.grow(root, r.Msg, 1)
	names, levels := root.encode(false)
	graph := &querierv1.FlameGraph{Names: names, Levels: levels, Total: root.total[1]}
	return connect.NewResponse(&querierv1.SelectMergeStacktracesResponse{Flamegraph: graph}), err
}

func (q *querier) Diff(_ context.Context, r *connect.Request[querierv1.DiffRequest]) (*connect.Response[querierv1.DiffResponse], error) {
	root := &treeNode{}
	err := errors.Join(q.grow(root, r.Msg.Left, 0), q.grow(root, r.Msg.Right, 1))
	names, levels := root.encode(true)
	graph := &querierv1.FlameGraphDiff{Names: names, Levels: levels, Total: root.total[0] + root.total[1], LeftTicks: root.total[0], RightTicks: root.total[1]}
	return connect.NewResponse(&querierv1.DiffResponse{Flamegraph: graph}), err
}

func (q *querier) SelectMergeProfile(_ context.Context, r *connect.Request[querierv1.SelectMergeProfileRequest]) (*connect.Response[googlev1.Profile], error) {
	var profiles []*profile.Profile
	err := q.selected(r.Msg.LabelSelector, r.Msg.ProfileTypeID, r.Msg.Start, r.Msg.End, func(p recorded, _ int) {
		profiles = append(profiles, p.Profile)
	})
	answer := &googlev1.Profile{}
	if err != nil || len(profiles) == 0 {
		return connect.NewResponse(answer), err
	}
	q.encoding.Lock()
	defer q.encoding.Unlock()
	merged, err := profile.Merge(profiles)
	if err != nil {
		return nil, err
	}
	var raw strings.Builder
	if err := merged.WriteUncompressed(&raw); err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), answer.UnmarshalVT([]byte(raw.String()))
}

// treeNode is a frame of a flame graph with the values of two sides; of one profile, the right side's count.
type treeNode struct {
	name        string
	total, self [2]int64
	children    []*treeNode
}

func (q *querier) grow(root *treeNode, r *querierv1.SelectMergeStacktracesRequest, side int) error {
	return q.selected(r.LabelSelector, r.ProfileTypeID, r.Start, r.End, func(p recorded, value int) {
		for _, sample := range p.Sample {
			at := root
			at.total[side] += sample.Value[value]
			for _, location := range slices.Backward(sample.Location) {
				at = at.child(location.Line[0].Function.Name)
				at.total[side] += sample.Value[value]
			}
			at.self[side] += sample.Value[value]
		}
	})
}

func (n *treeNode) child(name string) *treeNode {
	i, found := slices.BinarySearchFunc(n.children, name, func(c *treeNode, name string) int { return cmp.Compare(c.name, name) })
	if !found {
		n.children = slices.Insert(n.children, i, &treeNode{name: name})
	}
	return n.children[i]
}

// encode writes a tree as the API does: bars of a level from left to right, offsets counted from the end of the bar before.
func (n *treeNode) encode(isDiff bool) (names []string, levels []*querierv1.Level) {
	type bar struct {
		*treeNode
		start [2]int64
	}
	n.name = "total"
	index := map[string]int64{}
	for row := []bar{{treeNode: n}}; len(row) > 0; {
		level := &querierv1.Level{}
		var below []bar
		var end [2]int64
		for _, b := range row {
			if _, known := index[b.name]; !known {
				index[b.name] = int64(len(names))
				names = append(names, b.name)
			}
			for side := range end {
				if side == 1 || isDiff {
					level.Values = append(level.Values, b.start[side]-end[side], b.total[side], b.self[side])
				}
				end[side] = b.start[side] + b.total[side]
			}
			level.Values = append(level.Values, index[b.name])
			at := b.start
			for _, child := range b.children {
				below = append(below, bar{child, at})
				at[0] += child.total[0]
				at[1] += child.total[1]
			}
		}
		levels = append(levels, level)
		row = below
	}
	return names, levels
}
