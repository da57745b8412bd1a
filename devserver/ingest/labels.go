package ingest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/vramprof/vramprof/internal/profiles"
)

// Names of labels with a meaning of their own.
const (
	labelName    = "__name__"
	labelService = "service_name"

	unknownService = "unknown_service"
)

// seriesLabels checks the labels of a push. The server takes any UTF-8 as a name.
func seriesLabels(pairs []*typesv1.LabelPair) (map[string]string, error) {
	labels := make(map[string]string, len(pairs)+1)
	for _, p := range pairs {
		name := p.GetName()
		if _, ok := labels[name]; ok {
			return nil, refuse(ReasonDuplicateLabel, "label %q is there twice: send each name once", name)
		}
		labels[name] = p.GetValue()
	}
	delete(labels, "__session_id__") // means nothing to the server
	if labels[labelName] == "" {
		return nil, refuse(ReasonMissingName, "invalid metric name: label %s is missing or empty: set it to the name of the profile, such as gpu", labelName)
	}
	if service, ok := labels[labelService]; !ok {
		labels[labelService] = unknownService
	} else if service == "" {
		return nil, refuse(ReasonEmptyService, "label %s is empty: leave it out or give it a value", labelService)
	}
	return labels, checkLabels(labels)
}

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return refuse(ReasonTooManyLabels, "series has %d label names, limit %d: drop some labels or labels of samples", len(labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		switch {
		case len(name) > MaxLabelName:
			return refuse(ReasonLabelNameLong, "label name %.40q... has %d bytes, limit %d", name, len(name), MaxLabelName)
		case len(value) > MaxLabelValue:
			return refuse(ReasonLabelValueLong, "value of label %q has %d bytes, limit %d", name, len(value), MaxLabelValue)
		case name == "" || !utf8.ValidString(name) || !utf8.ValidString(value):
			return refuse(ReasonInvalidLabel, "label %q has an empty name or is not UTF-8: clean it before it is sent", name)
		}
	}
	return nil
}

// sampleLabels returns the string labels of a sample that make a series of their
// own. A label of the series wins over one of the same name; labels that tie a
// sample to a trace do not split, and numbers are dropped. Of two with one name
// the first counts.
func sampleLabels(s *googlev1.Sample, table []string, series map[string]string) (profiles.Labels, error) {
	if len(s.Label) > maxSampleLabels {
		return nil, refuse(ReasonSampleLabels, "sample has %d labels, limit %d", len(s.Label), maxSampleLabels)
	}
	var labels profiles.Labels
	for _, l := range s.Label {
		if l.Str == 0 {
			continue
		}
		switch name := table[l.Key]; name {
		case "", "span_id", "trace_id", "profile_id":
		default:
			if _, ok := series[name]; !ok {
				labels = append(labels, profiles.Label{Name: name, Value: table[l.Str]})
			}
		}
	}
	slices.SortStableFunc(labels, func(a, b profiles.Label) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(labels, func(a, b profiles.Label) bool { return a.Name == b.Name }), nil
}

// typed returns the labels of one profile type as the server stores them: an
// empty value is an absent one, and __delta__, which counted as a label, goes.
func typed(labels map[string]string, sampleType, sampleUnit, periodType, periodUnit string) profiles.Labels {
	all := maps.Clone(labels)
	delete(all, "__delta__")
	all["__type__"], all["__unit__"] = sampleType, sampleUnit
	all["__period_type__"], all["__period_unit__"] = periodType, periodUnit
	all["__profile_type__"] = strings.Join([]string{labels[labelName], sampleType, sampleUnit, periodType, periodUnit}, ":")
	all["__service_name__"] = labels[labelService]
	out := make(profiles.Labels, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			out = append(out, profiles.Label{Name: name, Value: all[name]})
		}
	}
	return out
}
