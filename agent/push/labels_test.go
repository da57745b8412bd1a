package push

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"
)

// Bug B36: labels that a server refuses or hides.
func TestB36Labels(t *testing.T) {
	many := map[string]string{"service_name": "chat"}
	for i := range 40 {
		many[fmt.Sprintf("label%02d", i)] = "x"
	}
	for _, row := range []struct {
		name    string
		labels  map[string]string
		want    map[string]string // without __name__; nil: not compared
		changed []Change
	}{
		{"good", map[string]string{"service_name": "chat", "_x9": "1"}, map[string]string{"service_name": "chat", "_x9": "1"}, nil},
		{"none", nil, map[string]string{}, nil},
		{"empty value", map[string]string{"service_name": "", "a": "1"}, map[string]string{"a": "1"}, nil},
		{"reserved", map[string]string{"__name__": "cpu", "__type__": "x", "a": "1"}, map[string]string{"a": "1"}, nil},
		{"characters", map[string]string{"a.b": "1", "9x": "2", "ä-ö": "3"}, map[string]string{"a_b": "1", "_9x": "2", "___": "3"}, []Change{Renamed, Renamed, Renamed}},
		{"clash with a good name", map[string]string{"a.b": "1", "a-b": "2", "a_b": "3"}, map[string]string{"a_b": "3"}, []Change{Clashed, Clashed}},
		{"clash of two bad ones", map[string]string{"a.b": "1", "a-b": "2"}, map[string]string{"a_b": "2"}, []Change{Renamed, Clashed}},
		{"long value", map[string]string{"a": "x" + strings.Repeat("ä", 1500)}, map[string]string{"a": "x" + strings.Repeat("ä", 1023)}, []Change{Cut}},
		{"no UTF-8", map[string]string{"a": "\xff"}, map[string]string{"a": "\uFFFD"}, nil},
		{"empty name", map[string]string{"": "1"}, map[string]string{"_": "1"}, []Change{Renamed}},
		{"too many", many, nil, slices.Repeat([]Change{Surplus}, 12)},
	} {
		t.Run(row.name, func(t *testing.T) {
			pairs, changed := series(row.labels)
			got := map[string]string{}
			for _, p := range pairs {
				if !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(p.Name) || !utf8.ValidString(p.Value) || p.Value == "" || len(p.Value) > 2048 {
					t.Errorf("label %q=%.40q", p.Name, p.Value)
				}
				got[p.Name] = p.Value
			}
			if len(got) != len(pairs) || len(pairs) > 30 || got["__name__"] != "gpu" {
				t.Errorf("%d labels, %d names", len(pairs), len(got))
			}
			if delete(got, "__name__"); row.want != nil && !maps.Equal(got, row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}
			if !slices.Equal(changed, row.changed) {
				t.Errorf("changed %v, want %v", changed, row.changed)
			}
			if row.labels["service_name"] != got["service_name"] {
				t.Error("service_name is gone")
			}
		})
	}
}

func TestTimesOfASeries(t *testing.T) {
	at := time.Unix(1_786_000_000, 0)
	u := times{last: map[string]int64{}}
	for _, row := range []struct {
		name, series string
		at, want     time.Time
	}{
		{"first", "a", at, at},
		{"the same", "a", at, at.Add(1)},
		{"that is taken too", "a", at.Add(1), at.Add(2)},
		{"another series", "b", at, at},
		{"later", "a", at.Add(15 * time.Second), at.Add(15 * time.Second)},
		{"clock set back a little", "a", at, at.Add(15*time.Second + 1)},
		{"clock set back a lot", "a", at.Add(-time.Hour), at.Add(-time.Hour)},
	} {
		if got := u.unique(row.series, row.at); !got.Equal(row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
	for i := range 100_000 {
		u.unique(fmt.Sprint(i), at.Add(time.Duration(i)*time.Second))
	}
	if n := len(u.last); n > 10_000 {
		t.Errorf("%d series are remembered of an hour with 3,600", n)
	}
}

func FuzzWithTime(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{0x48, 1, 0x50, 2, 0x48, 3}, int64(7))
	f.Add([]byte{0x4a, 1, 0}, int64(7)) // a time that is text
	f.Add([]byte{0x12, 2, 0x0a, 0, 0x32, 0}, int64(-5))
	f.Fuzz(func(t *testing.T, raw []byte, nanos int64) {
		out, err := withTime(raw, time.Unix(0, nanos))
		if err != nil {
			return
		}
		if again, err := withTime(out, time.Unix(0, nanos)); err != nil || string(again) != string(out) {
			t.Fatalf("%x: %x, then %x, %v", raw, out, again, err)
		}
		before, err := pprof.ParseUncompressed(raw)
		if err != nil {
			return
		}
		after, err := pprof.ParseUncompressed(out)
		if err != nil {
			t.Fatal(err)
		}
		if after.TimeNanos != nanos {
			t.Errorf("time %d, want %d", after.TimeNanos, nanos)
		}
		if after.TimeNanos = before.TimeNanos; after.String() != before.String() {
			t.Errorf("%v\nbecame\n%v", before, after)
		}
	})
}
