package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

const (
	millisecond = int64(time.Millisecond)
	// maxWindow is the longest query, as Pyroscope's -querier.max-query-length has it by default.
	maxWindow = 24 * time.Hour
	// defaultNodes and maxNodes bound a flame graph, as Pyroscope's -querier.max-flamegraph-nodes-default and -max do.
	defaultNodes = 8192
	maxNodes     = 1 << 20
)

// Source is what the profiles are read from. Both ends of a range of nanoseconds are in it.
type Source interface {
	Select(ctx context.Context, match func(profiles.Labels) bool, fromNanos, toNanos int64, visit func(*profiles.Selected) error) error
	// Totals visits what Select does, with the sum of its values.
	Totals(match func(profiles.Labels) bool, fromNanos, toNanos int64, visit func(labels profiles.Labels, nanos, total int64)) error
	Series(match func(profiles.Labels) bool, fromNanos, toNanos int64) []profiles.Labels
}

// Service implements querier.v1.QuerierService; calls that it has no answer to say unimplemented. It keeps no state.
type Service struct {
	querierv1connect.UnimplementedQuerierServiceHandler
	source Source
}

// New returns a service that answers from a source.
func New(source Source) *Service { return &Service{source: source} }

// SelectMergeStacktraces answers the sum of all profiles of a type in the window as a flame graph, or as pprof.
func (s *Service) SelectMergeStacktraces(ctx context.Context, r *connect.Request[querierv1.SelectMergeStacktracesRequest]) (*connect.Response[querierv1.SelectMergeStacktracesResponse], error) {
	switch r.Msg.Format {
	case querierv1.ProfileFormat_PROFILE_FORMAT_UNSPECIFIED, querierv1.ProfileFormat_PROFILE_FORMAT_FLAMEGRAPH:
	case querierv1.ProfileFormat_PROFILE_FORMAT_PPROF:
		profile, err := s.merge(ctx, r.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(&querierv1.SelectMergeStacktracesResponse{Pprof: &querierv1.PprofProfile{Profile: profile}}), nil
	default:
		return nil, unsupported("format %s; ask for a flame graph or pprof", r.Msg.Format)
	}
	limit, err := nodes(r.Msg.GetMaxNodes())
	if err != nil {
		return nil, invalid(err)
	}
	graph := &tree{}
	if err := s.grow(ctx, r.Msg, graph, right); err != nil {
		return nil, err
	}
	graph.prune(limit)
	return connect.NewResponse(&querierv1.SelectMergeStacktracesResponse{Flamegraph: flameGraph(&graph.root)}), nil
}

// Diff answers two selections as one flame graph with two values a bar.
func (s *Service) Diff(ctx context.Context, r *connect.Request[querierv1.DiffRequest]) (*connect.Response[querierv1.DiffResponse], error) {
	if r.Msg.Left == nil || r.Msg.Right == nil {
		return nil, invalid(errors.New("left and right: both selections are needed"))
	}
	limit, err := nodes(max(r.Msg.Left.GetMaxNodes(), r.Msg.Right.GetMaxNodes()))
	if err != nil {
		return nil, invalid(err)
	}
	graph := &tree{}
	for side, request := range [2]*querierv1.SelectMergeStacktracesRequest{left: r.Msg.Left, right: r.Msg.Right} {
		if err := s.grow(ctx, request, graph, side); err != nil {
			return nil, err
		}
	}
	graph.prune(limit)
	return connect.NewResponse(&querierv1.DiffResponse{Flamegraph: flameGraphDiff(&graph.root)}), nil
}

// SelectMergeProfile answers the sum of all profiles of a type in the window as pprof. It is whole: max_nodes is not for pprof,
// as in Pyroscope's default configuration.
func (s *Service) SelectMergeProfile(ctx context.Context, r *connect.Request[querierv1.SelectMergeProfileRequest]) (*connect.Response[googlev1.Profile], error) {
	profile, err := s.merge(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(profile), nil
}

// SelectSeries answers sums over time. The aggregation is always the sum, as in Pyroscope's second storage, which does not read
// the field.
func (s *Service) SelectSeries(ctx context.Context, r *connect.Request[querierv1.SelectSeriesRequest]) (*connect.Response[querierv1.SelectSeriesResponse], error) {
	if !(r.Msg.Step >= 0.001 && r.Msg.Step <= maxWindow.Seconds()*366) { // not a number fails too
		return nil, invalid(fmt.Errorf("step: %v seconds, expected a millisecond to a year", r.Msg.Step))
	}
	if _, _, err := window(r.Msg.Start, r.Msg.End); err != nil {
		return nil, invalid(err)
	}
	t := &timeline{start: r.Msg.Start, end: r.Msg.End, step: int64(r.Msg.Step * 1000), groupBy: r.Msg.GroupBy}
	from, to := (t.start-t.step)*millisecond, (t.end+1)*millisecond-1
	if err := s.totals(ctx, r.Msg, from, to, t.add); err != nil {
		return nil, err
	}
	return connect.NewResponse(&querierv1.SelectSeriesResponse{Series: t.series(r.Msg.GetLimit())}), nil
}

// selection is what every request for samples has.
type selection interface {
	GetProfileTypeID() string
	GetLabelSelector() string
	GetStart() int64
	GetEnd() int64
	GetStackTraceSelector() *typesv1.StackTraceSelector
}

func (s *Service) grow(ctx context.Context, of *querierv1.SelectMergeStacktracesRequest, graph *tree, side int) error {
	from, to, err := window(of.Start, of.End)
	if err != nil {
		return invalid(err)
	}
	return s.visit(ctx, of, from, to, func(p *profiles.Selected) { graph.add(p, side) })
}

func (s *Service) merge(ctx context.Context, of selection) (*googlev1.Profile, error) {
	from, to, err := window(of.GetStart(), of.GetEnd())
	if err != nil {
		return nil, invalid(err)
	}
	profileType, err := parseProfileType(of.GetProfileTypeID())
	if err != nil {
		return nil, invalid(err)
	}
	m := newMerger(profileType, of.GetStart(), of.GetEnd())
	if err := s.visit(ctx, of, from, to, m.add); err != nil {
		return nil, err
	}
	if len(m.profile.Sample) == 0 {
		return &googlev1.Profile{}, nil
	}
	return m.profile, nil
}

// visit gives every selected profile to a function. Its errors are Connect's.
func (s *Service) visit(ctx context.Context, of selection, from, to int64, each func(*profiles.Selected)) error {
	selector, err := selectorOf(of)
	if err != nil {
		return err
	}
	callSite := of.GetStackTraceSelector().GetCallSite()
	return failed(ctx, s.source.Select(ctx, selector.Matches, from, to, func(p *profiles.Selected) error {
		if len(callSite) > 0 {
			p.Stacks = slices.DeleteFunc(p.Stacks, func(s profiles.Stack) bool { return !under(p.Frames, s.Frames, callSite) })
		}
		each(p)
		return ctx.Err()
	}))
}

// totals gives the sum of every selected profile to a function.
func (s *Service) totals(ctx context.Context, of selection, from, to int64, each func(labels profiles.Labels, nanos, total int64)) error {
	if len(of.GetStackTraceSelector().GetCallSite()) > 0 {
		return s.visit(ctx, of, from, to, func(p *profiles.Selected) {
			for _, stack := range p.Stacks {
				each(p.Labels, p.TimeNanos, stack.Value)
			}
		})
	}
	selector, err := selectorOf(of)
	if err != nil {
		return err
	}
	return failed(ctx, s.source.Totals(selector.Matches, from, to, each))
}

func selectorOf(of selection) (Selector, error) {
	profileType, err := parseProfileType(of.GetProfileTypeID())
	if err != nil {
		return nil, invalid(err)
	}
	selector, err := ParseSelector(of.GetLabelSelector())
	if err != nil {
		return nil, invalid(err)
	}
	if err := identified(of); err != nil {
		return nil, err
	}
	id := strings.Join([]string{profileType.Name, profileType.SampleType, profileType.SampleUnit, profileType.PeriodType, profileType.PeriodUnit}, ":")
	return append(selector, matcher{name: profileTypeLabel, value: id}), nil
}

// failed turns an error of the source into Connect's.
func failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // Connect knows which code it is
	case err == nil:
		return nil
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("read profiles: %w", err))
}

// identified refuses a selection by what the profiles here do not have: an answer without that filter would be a wrong one.
func identified(of selection) error {
	if of.GetStackTraceSelector().GetGoPgo() != nil {
		return unsupported("stack_trace_selector.go_pgo; fetch the whole profile")
	}
	if r, ok := of.(interface{ GetProfileIdSelector() []string }); ok && len(r.GetProfileIdSelector()) > 0 {
		return unsupported("profile_id_selector; select the profile by its time and labels")
	}
	if r, ok := of.(interface{ GetTraceIdSelector() []string }); ok && len(r.GetTraceIdSelector()) > 0 {
		return unsupported("trace_id_selector: profiles of GPU memory have no traces")
	}
	if r, ok := of.(interface{ GetSpanSelector() []string }); ok && len(r.GetSpanSelector()) > 0 {
		return unsupported("span_selector: profiles of GPU memory have no spans")
	}
	return nil
}

// under says whether a stack begins, from its outermost frame, with the frames of a call site.
func under(frames []profiles.Frame, stack []uint32, callSite []*typesv1.Location) bool {
	if len(callSite) > len(stack) {
		return false
	}
	for i, frame := range callSite {
		if nameOf(frames[stack[len(stack)-1-i]]) != frame.GetName() {
			return false
		}
	}
	return true
}

// window is a range of milliseconds in nanoseconds, both ends included: of the last millisecond, all of it.
func window(start, end int64) (from, to int64, err error) {
	switch latest := time.Unix(1<<33, 0).UnixMilli(); {
	case start == 0 || end == 0:
		return 0, 0, errors.New("missing time range in the query; start and end are in milliseconds of Unix time")
	case start < 0 || end > latest:
		return 0, 0, fmt.Errorf("the time range %d to %d is not in milliseconds of Unix time", start, end)
	case start > end:
		return 0, 0, fmt.Errorf("the time range starts at %d, after its end at %d", start, end)
	case end-start > maxWindow.Milliseconds():
		length := time.Duration(end-start) * time.Millisecond
		return 0, 0, fmt.Errorf("the query time range exceeds the limit (query length: %s, limit: %s); ask for less", length, maxWindow)
	}
	return start * millisecond, (end+1)*millisecond - 1, nil
}

// parseProfileType reads name:sample type:sample unit:period type:period unit. A sixth part, which was :delta in older versions,
// says nothing.
func parseProfileType(id string) (*typesv1.ProfileType, error) {
	parts := strings.Split(id, ":")
	if len(parts) != 5 && len(parts) != 6 {
		return nil, fmt.Errorf("profile_typeID %q: expected name:sample_type:sample_unit:period_type:period_unit, as ProfileTypes lists them", id)
	}
	return &typesv1.ProfileType{
		ID: id, Name: parts[0], SampleType: parts[1], SampleUnit: parts[2], PeriodType: parts[3], PeriodUnit: parts[4],
	}, nil
}

func nodes(asked int64) (int, error) {
	switch {
	case asked == 0:
		return defaultNodes, nil
	case asked < 0 || asked > maxNodes:
		return 0, fmt.Errorf("max_nodes: %d, expected 1 to %d", asked, maxNodes)
	}
	return int(asked), nil
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }

func unsupported(format string, arguments ...any) error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("this server does not know "+format, arguments...))
}
