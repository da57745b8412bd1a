package query

import (
	"slices"
	"testing"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

func TestLabels(t *testing.T) {
	s := New(memory{
		at(noon*millisecond, allocBytes, "llm", "v1", nil),
		at(noon*millisecond, inUseBytes, "llm", "v2", nil),
		at(noon*millisecond, inUseBytes, "web", "", nil),
		at((noon+1000)*millisecond, "gpu:later:bytes:gpu:bytes", "later", "v9", nil),
		at(noon*millisecond, "no type", "llm", "", nil),
	})
	types := ask(t, s.ProfileTypes, &querierv1.ProfileTypesRequest{Start: noon, End: noon + 999})
	want := []*typesv1.ProfileType{
		{ID: allocBytes, Name: "gpu", SampleType: "gpu_alloc_bytes", SampleUnit: "bytes", PeriodType: "gpu", PeriodUnit: "bytes"},
		{ID: inUseBytes, Name: "gpu", SampleType: "gpu_inuse_bytes", SampleUnit: "bytes", PeriodType: "gpu", PeriodUnit: "bytes"},
	}
	if !slices.EqualFunc(types.ProfileTypes, want, (*typesv1.ProfileType).EqualVT) {
		t.Errorf("the profile types are %v", types.ProfileTypes)
	}
	for _, row := range []struct {
		name     string
		matchers []string
		names    []string
		versions []string
	}{
		{"no matcher", nil, []string{profileTypeLabel, "service_name", "version"}, []string{"v1", "v2"}},
		{"one", []string{`{service_name="web"}`}, []string{profileTypeLabel, "service_name"}, nil},
		{"every matcher holds", []string{`{service_name="llm"}`, `{version!="v1"}`}, []string{profileTypeLabel, "service_name", "version"}, []string{"v2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			names := ask(t, s.LabelNames, &typesv1.LabelNamesRequest{Matchers: row.matchers, Start: noon, End: noon})
			if !slices.Equal(names.Names, row.names) {
				t.Errorf("names %q, want %q", names.Names, row.names)
			}
			values := ask(t, s.LabelValues, &typesv1.LabelValuesRequest{Name: "version", Matchers: row.matchers, Start: noon, End: noon})
			if !slices.Equal(values.Names, row.versions) {
				t.Errorf("versions %q, want %q", values.Names, row.versions)
			}
		})
	}
	series := ask(t, s.Series, &querierv1.SeriesRequest{LabelNames: []string{"service_name"}, Start: noon, End: noon})
	if len(series.LabelsSet) != 2 || series.LabelsSet[0].Labels[0].Value != "llm" || series.LabelsSet[1].Labels[0].Value != "web" {
		t.Errorf("the series by service are %v", series.LabelsSet)
	}
	if all := ask(t, s.Series, &querierv1.SeriesRequest{Start: noon, End: noon}); len(all.LabelsSet) != 4 {
		t.Errorf("the series are %v", all.LabelsSet)
	}
}

// A name that is no identifier is told to those who can quote it. Without a window, the types of any time are listed.
func TestNamesThatAreNoIdentifiers(t *testing.T) {
	p := at(noon*millisecond, allocBytes, "llm", "", nil)
	p.Labels = slices.Insert(p.Labels, 1, profiles.Label{Name: "k8s.pod.name", Value: "a"})
	s := New(memory{p})
	for accept, want := range map[string][]string{
		"":                                {profileTypeLabel, "service_name"},
		"*/*; allow-utf8-labelnames=true": {profileTypeLabel, "k8s.pod.name", "service_name"},
	} {
		names := connect.NewRequest(&typesv1.LabelNamesRequest{Start: noon, End: noon})
		series := connect.NewRequest(&querierv1.SeriesRequest{Start: noon, End: noon})
		names.Header().Set("Accept", accept)
		series.Header().Set("Accept", accept)
		gotNames, err := s.LabelNames(t.Context(), names)
		if err != nil || !slices.Equal(gotNames.Msg.Names, want) {
			t.Errorf("%q: %v, %v", accept, gotNames, err)
		}
		gotSeries, err := s.Series(t.Context(), series)
		if err != nil || len(gotSeries.Msg.LabelsSet[0].Labels) != len(want) {
			t.Errorf("%q: %v, %v", accept, gotSeries, err)
		}
	}
	if types := ask(t, s.ProfileTypes, &querierv1.ProfileTypesRequest{}); len(types.ProfileTypes) != 1 || types.ProfileTypes[0].ID != allocBytes {
		t.Errorf("the types of any time are %v", types)
	}
}
