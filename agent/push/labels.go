package push

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

const (
	// maxLabels, maxName and maxValue are Pyroscope's limits of a series: max_label_names_per_series, max_label_name_length,
	// max_label_value_length.
	maxLabels = 30
	maxName   = 1024
	maxValue  = 2048
)

// Change says what was done to a label to make it one that the server takes. It is a metric label.
type Change string

// The changes.
const (
	Renamed Change = "renamed" // the name had other characters than letters, digits and underscores
	Clashed Change = "clashed" // left out: it came to have another's name
	Cut     Change = "cut"     // the value was too long
	Surplus Change = "surplus" // left out: there were too many
)

func changes() []Change { return []Change{Renamed, Clashed, Cut, Surplus} }

// series makes the labels of a series, sorted, and says what it had to change. Labels without a value are left out, as they
// are to the server, and so is what the server reserves. Of two labels that come to have one name, the one that had it
// stands, else the first in the order of the original names. If there are too many, service_name stays.
func series(labels map[string]string) (out []*typesv1.LabelPair, changed []Change) {
	names := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(boolCompare(safeName(a) != a, safeName(b) != b), boolCompare(a != "service_name", b != "service_name"), cmp.Compare(a, b))
	})
	taken := map[string]bool{"__name__": true}
	for _, original := range names {
		value, name := strings.ToValidUTF8(labels[original], "\uFFFD"), safeName(original)
		if value == "" || strings.HasPrefix(original, "__") {
			continue
		}
		switch {
		case taken[name]:
			changed = append(changed, Clashed)
			continue
		case len(out) == maxLabels-1:
			changed = append(changed, Surplus)
			continue
		case name != original:
			changed = append(changed, Renamed)
		}
		if len(value) > maxValue {
			changed = append(changed, Cut)
			value = cutText(value, maxValue)
		}
		taken[name] = true
		out = append(out, &typesv1.LabelPair{Name: name, Value: value})
	}
	out = append(out, &typesv1.LabelPair{Name: "__name__", Value: "gpu"})
	slices.SortFunc(out, func(a, b *typesv1.LabelPair) int { return strings.Compare(a.Name, b.Name) })
	return out, changed
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// safeName makes a name of letters, digits and underscores. Pyroscope takes others, and then hides them from its clients.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		s = "_" + s
	}
	return s[:min(len(s), maxName)]
}

func cutText(s string, n int) string {
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// key is the same for equal labels only.
func key(labels []*typesv1.LabelPair) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(l.Name)
		b.WriteByte(0xff) // never in UTF-8
		b.WriteString(l.Value)
		b.WriteByte(0xff)
	}
	return b.String()
}
