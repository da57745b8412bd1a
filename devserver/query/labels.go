package query

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// profileTypeLabel holds the profile type ID of a series, in Pyroscope and in the profiles.
const profileTypeLabel = "__profile_type__"

// ProfileTypes lists the profile types that have a profile in the window, or ever if no window is given: Grafana's data source
// asks so to test itself (grafana/grafana#110211).
func (s *Service) ProfileTypes(_ context.Context, r *connect.Request[querierv1.ProfileTypesRequest]) (*connect.Response[querierv1.ProfileTypesResponse], error) {
	var ids []string
	if r.Msg.Start == 0 && r.Msg.End == 0 {
		ids = valuesOf(profileTypeLabel, s.source.Series(Selector{}.Matches, 0, 0))
	} else {
		var err error
		if ids, err = s.values(profileTypeLabel, nil, r.Msg.Start, r.Msg.End); err != nil {
			return nil, err
		}
	}
	answer := &querierv1.ProfileTypesResponse{}
	for _, id := range ids {
		if profileType, err := parseProfileType(id); err == nil { // another ID cannot be queried, so it is not offered
			answer.ProfileTypes = append(answer.ProfileTypes, profileType)
		}
	}
	return connect.NewResponse(answer), nil
}

// LabelNames lists the names of the labels in the window, as far as the client can know them.
func (s *Service) LabelNames(_ context.Context, r *connect.Request[typesv1.LabelNamesRequest]) (*connect.Response[typesv1.LabelNamesResponse], error) {
	series, err := s.series(r.Msg.Matchers, r.Msg.Start, r.Msg.End)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	isKnown := knownTo(r.Header())
	for _, labels := range series {
		for _, label := range labels {
			if isKnown(label.Name) {
				names[label.Name] = true
			}
		}
	}
	return connect.NewResponse(&typesv1.LabelNamesResponse{Names: slices.Sorted(maps.Keys(names))}), nil
}

// LabelValues lists the values of one label in the window.
func (s *Service) LabelValues(_ context.Context, r *connect.Request[typesv1.LabelValuesRequest]) (*connect.Response[typesv1.LabelValuesResponse], error) {
	if r.Msg.Name == "" {
		return nil, invalid(errors.New("name: say the label whose values are wanted"))
	}
	values, err := s.values(r.Msg.Name, r.Msg.Matchers, r.Msg.Start, r.Msg.End)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&typesv1.LabelValuesResponse{Names: values}), nil
}

// Series lists the distinct label sets in the window, cut to the wanted names if there are any.
func (s *Service) Series(_ context.Context, r *connect.Request[querierv1.SeriesRequest]) (*connect.Response[querierv1.SeriesResponse], error) {
	series, err := s.series(r.Msg.Matchers, r.Msg.Start, r.Msg.End)
	if err != nil {
		return nil, err
	}
	sets, isKnown := map[string]profiles.Labels{}, knownTo(r.Header())
	for _, labels := range series {
		labels = slices.DeleteFunc(slices.Clone(labels), func(l profiles.Label) bool {
			return !isKnown(l.Name) || len(r.Msg.LabelNames) > 0 && !slices.Contains(r.Msg.LabelNames, l.Name)
		})
		if len(labels) > 0 {
			sets[labels.Key()] = labels
		}
	}
	answer := &querierv1.SeriesResponse{}
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		answer.LabelsSet = append(answer.LabelsSet, &typesv1.Labels{Labels: pairs(sets[key])})
	}
	return connect.NewResponse(answer), nil
}

// knownTo says which names of labels a client hears of: those that are identifiers, and others if it says in its Accept header
// that it can quote them, as Pyroscope asks of its clients.
func knownTo(header http.Header) func(name string) bool {
	if strings.Contains(strings.Join(header.Values("Accept"), ","), "allow-utf8-labelnames=true") {
		return func(string) bool { return true }
	}
	return func(name string) bool { return identifier.FindString(name) == name }
}

func (s *Service) values(name string, matchers []string, start, end int64) ([]string, error) {
	series, err := s.series(matchers, start, end)
	if err != nil {
		return nil, err
	}
	return valuesOf(name, series), nil
}

func valuesOf(name string, series []profiles.Labels) []string {
	values := map[string]bool{}
	for _, labels := range series {
		if value, present := labels.Get(name); present {
			values[value] = true
		}
	}
	return slices.Sorted(maps.Keys(values))
}

// series are the label sets in a window that every one of the matchers selects.
func (s *Service) series(matchers []string, start, end int64) ([]profiles.Labels, error) {
	from, to, err := window(start, end)
	if err != nil {
		return nil, invalid(err)
	}
	var all Selector
	for _, text := range matchers {
		selector, err := ParseSelector(text)
		if err != nil {
			return nil, invalid(err)
		}
		all = append(all, selector...)
	}
	return s.source.Series(all.Matches, from, to), nil
}

func pairs(labels profiles.Labels) []*typesv1.LabelPair {
	var list []*typesv1.LabelPair
	for _, label := range labels {
		list = append(list, &typesv1.LabelPair{Name: label.Name, Value: label.Value})
	}
	return list
}
