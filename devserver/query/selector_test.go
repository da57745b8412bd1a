package query

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/profiles"
)

func TestSelector(t *testing.T) {
	labels := profiles.Labels{{Name: "__name__", Value: "odd:name"}, {Name: "empty", Value: ""}, {Name: "k8s.pod.name", Value: `a "b"\c`}, {Name: "service_name", Value: "llm\nserver"}, {Name: "version", Value: "v1"}}
	for _, row := range []struct {
		name, selector string
		want           bool
	}{
		{"everything", `{}`, true},
		{"everything with spaces", " {\n} ", true},
		{"equal", `{version="v1"}`, true},
		{"equal is case sensitive", `{version="V1"}`, false},
		{"not equal", `{version!="v1"}`, false},
		{"all must hold", `{version="v1", service_name="other"}`, false},
		{"comma at the end", `{version="v1",}`, true},
		{"spaces anywhere", `{ version = "v1" , version != "v2" }`, true},
		{"alternatives", `{version=~"v1|v2"}`, true},
		{"pattern is anchored at the start", `{version=~"1|2"}`, false},
		{"pattern is anchored at the end", `{version=~"v"}`, false},
		{"alternatives are anchored as a whole", `{version=~"x|v"}`, false},
		{"negated pattern", `{version!~"v2|v3"}`, true},
		{"negated pattern that matches", `{version!~"v.*"}`, false},
		{"dot matches a line break", `{service_name=~"llm.server"}`, true},
		{"flags of the pattern", `{version=~"(?i)V1"}`, true},
		{"absent is empty", `{absent=""}`, true},
		{"absent is not a value", `{absent!="x"}`, true},
		{"absent is not something", `{absent!=""}`, false},
		{"absent against a pattern", `{absent=~".+"}`, false},
		{"absent against the empty pattern", `{absent=~""}`, true},
		{"present and empty", `{empty=""}`, true},
		{"quoted name", `{"version"="v1"}`, true},
		{"quoted name that is no identifier", `{"k8s.pod.name"=~"a .*"}`, true},
		{"escapes", `{"k8s.pod.name"="a \"b\"\\c"}`, true},
		{"escaped line break", `{service_name="llm\nserver"}`, true},
		{"hexadecimal escape", `{version="\x761"}`, true},
		{"single quotes", `{'k8s.pod.name'='a "b"\\c'}`, true},
		{"raw quotes", "{\"k8s.pod.name\"=`a \"b\"\\c`}", true},
		{"name of the profile", `gpu{version="v1"}`, false},
		{"name of the profile, alone", ` odd:name `, true},
		{"name of the profile, quoted", `{"odd:name", version="v1"}`, true},
		{"name of the profile, quoted, last", `{version="v1", "odd:name" }`, true},
		{"braces and commas in a value", `{version!="},{"}`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			selector, err := ParseSelector(row.selector)
			if err != nil {
				t.Fatal(err)
			}
			if got := selector.Matches(labels); got != row.want {
				t.Errorf("%s matches: %v, want %v", row.selector, got, row.want)
			}
		})
	}
}

func TestSelectorRefused(t *testing.T) {
	for _, row := range []struct{ name, selector, says string }{
		{"empty", ``, "{} selects everything"},
		{"only spaces", ` `, "expected {"},
		{"no braces", `version="v1"`, "expected {"},
		{"not closed", `{version="v1"`, "expected , or }"},
		{"only a comma", `{,}`, "expected the name"},
		{"no value", `{version=}`, `a quoted value for "version"`},
		{"value not quoted", `{version=v1}`, `a quoted value for "version"`},
		{"no operator", `{version}`, "expected =, !="},
		{"quote not closed", `{version="v1}`, "not closed"},
		{"raw quote not closed", "{version=`v1}", "not closed"},
		{"bad escape", `{version="\q"}`, "escape"},
		{"line break in quotes", "{version=\"v\n1\"}", "line break"},
		{"bad pattern", `{version=~"("}`, "missing closing )"},
		{"pattern that breaks out", `{version=~")|(.*"}`, "unexpected )"},
		{"empty name", `{""="x"}`, "name of a label is empty"},
		{"dot in a bare name", `{k8s.pod="x"}`, "expected =, !="},
		{"something after", `{version="v1"} x`, "nothing may follow"},
		{"not UTF-8", "{version=\"\xff\"}", "not UTF-8"},
		{"too long", `{version="` + strings.Repeat("x", maxSelector) + `"}`, "at most"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := ParseSelector(row.selector); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("the error is %v, want one that says %q", err, row.says)
			}
		})
	}
}

// FuzzParseSelector also says in a selector what the labels are, whatever their bytes: it must select them, and its negation not.
func FuzzParseSelector(f *testing.F) {
	f.Add(`{service_name="llm", version=~"v1|v2", "k8s.pod.name"!='x'}`, "version", "v1")
	f.Add("{a!~`b`,}", "a.b", "\"\\\n\xff")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		if selector, err := ParseSelector(text); err == nil {
			selector.Matches(profiles.Labels{{Name: name, Value: value}})
		}
		if name == "" || len(name)+len(value) > 1000 {
			return
		}
		labels := profiles.Labels{{Name: name, Value: value}}
		for operator, want := range map[string]bool{"=": true, "!=": false} {
			text := "{" + quote(name) + operator + quote(value) + "}"
			selector, err := ParseSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			if selector.Matches(labels) != want {
				t.Errorf("%s matches %q=%q: %v", text, name, value, !want)
			}
		}
	})
}

// quote writes every byte as an escape.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		b.WriteString(`\x`)
		b.WriteByte("0123456789abcdef"[c>>4])
		b.WriteByte("0123456789abcdef"[c&15])
	}
	b.WriteByte('"')
	return b.String()
}
