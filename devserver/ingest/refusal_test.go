package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
)

func TestRefusedLabels(t *testing.T) {
	raw := marshal(t, simple())
	many := func(n int) []string { // n labels, the name and the service among them
		labels := []string{"__name__", "gpu"}
		for i := range n - 2 {
			labels = append(labels, fmt.Sprint("l", i), "")
		}
		return labels
	}
	for _, row := range []struct {
		name   string
		labels []string
		want   Reason // "" is accepted
	}{
		{"no name", nil, ReasonMissingName},
		{"empty name", []string{"__name__", ""}, ReasonMissingName},
		{"empty service", []string{"__name__", "gpu", "service_name", ""}, ReasonEmptyService},
		{"odd names", []string{"__name__", "gpu mem-x.y", "k8s.pod/ñ", ""}, ""},
		{"label without a name", []string{"__name__", "gpu", "", "x"}, ReasonInvalidLabel},
		{"not UTF-8", []string{"__name__", "gpu", "comm", "\xff"}, ReasonInvalidLabel},
		{"same label twice", []string{"__name__", "gpu", "a", "1", "a", "1"}, ReasonDuplicateLabel},
		{"30 labels", many(30), ""},
		{"31 labels", many(31), ReasonTooManyLabels},
		{"30 labels and a session", append(many(30), "__session_id__", "x"), ""},
		{"30 labels and a delta", append(many(30), "__delta__", "false"), ReasonTooManyLabels},
		{"long label name", []string{"__name__", "gpu", strings.Repeat("n", 1024), ""}, ""},
		{"longer label name", []string{"__name__", "gpu", strings.Repeat("n", 1025), ""}, ReasonLabelNameLong},
		{"long label value", []string{"__name__", "gpu", "v", strings.Repeat("n", 2048)}, ""},
		{"longer label value", []string{"__name__", "gpu", "v", strings.Repeat("n", 2049)}, ReasonLabelValueLong},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := convert(t, push(raw, row.labels...))
			if row.want != "" {
				wantRefusal(t, err, row.want, connect.CodeInvalidArgument)
			} else if err != nil || len(got) != 2 {
				t.Errorf("%d profiles, %v", len(got), err)
			}
		})
	}
}

func TestRefusedContent(t *testing.T) {
	label := func(kv ...int64) []*googlev1.Label {
		var ls []*googlev1.Label
		for i := 0; i < len(kv); i += 2 {
			ls = append(ls, &googlev1.Label{Key: kv[i], Str: kv[i+1]})
		}
		return ls
	}
	samples := func(n int) func(*googlev1.Profile) {
		return func(p *googlev1.Profile) { p.Sample = slices.Repeat(p.Sample, n) }
	}
	for _, row := range []struct {
		name string
		edit func(*googlev1.Profile)
		want Reason // "" is accepted
	}{
		{"16000 samples", samples(16000), ""},
		{"16001 samples", samples(16001), ReasonTooManySamples},
		{"sample type with -", func(p *googlev1.Profile) { p.StringTable[1] = "alloc-bytes" }, ReasonSampleType},
		{"sample type with . and space", func(p *googlev1.Profile) { p.StringTable[1] = "alloc. bytes" }, ""},
		{"empty sample type", func(p *googlev1.Profile) { p.StringTable[1], p.StringTable[2] = "", "" }, ""},
		{"same sample type twice", func(p *googlev1.Profile) { p.SampleType[1] = p.SampleType[0] }, ""},
		{"no sample type", func(p *googlev1.Profile) { p.SampleType, p.Sample = nil, nil }, ReasonMalformed},
		{"string that is not UTF-8 and not used", func(p *googlev1.Profile) { p.StringTable = append(p.StringTable, "a\xc3") }, ReasonInvalidUTF8},
		{"string 0 not empty", func(p *googlev1.Profile) { p.StringTable[0] = "x" }, ReasonMalformed},
		{"no strings", func(p *googlev1.Profile) { p.StringTable = nil }, ReasonMalformed},
		{"one value for two types", func(p *googlev1.Profile) { p.Sample[0].Value = []int64{1} }, ReasonMalformed},
		{"location 0 in a sample", func(p *googlev1.Profile) { p.Sample[0].LocationId[0] = 0 }, ReasonMalformed},
		{"absent location", func(p *googlev1.Profile) { p.Sample[0].LocationId[0] = 77 }, ReasonMalformed},
		{"location with ID 0", func(p *googlev1.Profile) { p.Location[0].Id = 0 }, ReasonMalformed},
		{"location twice", func(p *googlev1.Profile) { p.Location[0].Id = 2 }, ReasonMalformed},
		{"function 0 in a line", func(p *googlev1.Profile) { p.Location[0].Line[0].FunctionId = 0 }, ReasonMalformed},
		{"function with ID 0", func(p *googlev1.Profile) { p.Function[0].Id = 0 }, ReasonMalformed},
		{"absent mapping", func(p *googlev1.Profile) { p.Location[0].MappingId = 9 }, ReasonMalformed},
		{"mapping with ID 0, its locations too", func(p *googlev1.Profile) {
			p.Mapping[0].Id, p.Location[0].MappingId, p.Location[1].MappingId = 0, 0, 0
		}, ""},
		{"mapping with ID 0", func(p *googlev1.Profile) { p.Mapping[0].Id = 0 }, ReasonMalformed},
		{"name not in the table", func(p *googlev1.Profile) { p.Function[0].Name = 99 }, ReasonMalformed},
		{"negative string", func(p *googlev1.Profile) { p.Mapping[0].BuildId = -1 }, ReasonMalformed},
		{"sample type not in the table", func(p *googlev1.Profile) { p.SampleType[0].Unit = 99 }, ReasonMalformed},
		{"period type not in the table", func(p *googlev1.Profile) { p.PeriodType.Type = 99 }, ReasonMalformed},
		{"sample label not in the table", func(p *googlev1.Profile) { p.Sample[0].Label = label(99, 1) }, ReasonMalformed},
		{"sample label twice and one without a name", func(p *googlev1.Profile) {
			p.Sample[0].Label = label(strStream, strSeven, strStream, 1, 0, strSeven)
		}, ""},
		{"sample label with a long value", func(p *googlev1.Profile) {
			p.StringTable[strSeven] = strings.Repeat("7", 2049)
			p.Sample[0].Label = label(strStream, strSeven)
		}, ReasonLabelValueLong},
		{"31 labels with those of a sample", func(p *googlev1.Profile) {
			for i := range 29 {
				p.StringTable = append(p.StringTable, fmt.Sprint("l", i))
				p.Sample[0].Label = append(p.Sample[0].Label, label(int64(len(p.StringTable)-1), strSeven)...)
			}
		}, ReasonTooManyLabels},
		{"101 labels on a sample", func(p *googlev1.Profile) {
			p.Sample[0].Label = slices.Repeat([]*googlev1.Label{{Key: strStream, Num: 1}}, 101)
		}, ReasonSampleLabels},
		{"frames beyond memory", func(p *googlev1.Profile) {
			p.Location[0].Line = slices.Repeat(p.Location[0].Line, 2000)
			p.Sample[0].LocationId = slices.Repeat([]uint64{1}, 1000)
			p.Sample = append(p.Sample, &googlev1.Sample{LocationId: slices.Repeat([]uint64{1}, 999), Value: []int64{1, 1}})
		}, ReasonTooManyFrames},
		{"series beyond memory", func(p *googlev1.Profile) {
			p.SampleType, p.Sample[0].Value = nil, nil
			for i := range int64(maxSeries + 1) {
				p.StringTable = append(p.StringTable, fmt.Sprint(i))
				p.SampleType = append(p.SampleType, &googlev1.ValueType{Type: int64(len(p.StringTable) - 1)})
				p.Sample[0].Value = append(p.Sample[0].Value, 1)
			}
		}, ReasonTooManySeries},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := simple()
			row.edit(p)
			got, err := convert(t, push(marshal(t, p), "__name__", "gpu"))
			if row.want != "" {
				wantRefusal(t, err, row.want, connect.CodeInvalidArgument)
			} else if err != nil || len(got) != 2 {
				t.Errorf("%d profiles, %v", len(got), err)
			}
		})
	}
}

// sized is simple with names to make it of n bytes.
func sized(t *testing.T, n int) []byte {
	random := rand.NewChaCha8([32]byte{})
	p := simple()
	for p.SizeVT()+70000 < n {
		b := make([]byte, 30000)
		if _, err := random.Read(b); err != nil {
			t.Fatal(err)
		}
		p.StringTable = append(p.StringTable, fmt.Sprintf("%x", b))
	}
	p.StringTable = append(p.StringTable, "")
	p.StringTable[len(p.StringTable)-1] = strings.Repeat("x", n-p.SizeVT()-3)
	for p.SizeVT() < n {
		p.StringTable[len(p.StringTable)-1] += "x"
	}
	if p.SizeVT() != n {
		t.Fatalf("made %d bytes, want %d", p.SizeVT(), n)
	}
	return marshal(t, p)
}

func TestRefusedBytes(t *testing.T) {
	raw := marshal(t, simple())
	const labels = len("__name__gpuservice_nameunknown_service")
	for _, row := range []struct {
		name string
		raw  []byte
		want Reason // "" is accepted
		code connect.Code
	}{
		{"empty", nil, ReasonUndecodable, connect.CodeUnknown},
		{"not pprof", []byte("hello"), ReasonUndecodable, connect.CodeUnknown},
		{"cut pprof", raw[:len(raw)-1], ReasonUndecodable, connect.CodeUnknown},
		{"gzip of not pprof", zipped(t, []byte("hello")), ReasonUndecodable, connect.CodeUnknown},
		{"cut gzip", zipped(t, raw)[:40], ReasonUndecodable, connect.CodeUnknown},
		{"gzip magic alone", []byte{0x1f, 0x8b}, ReasonUndecodable, connect.CodeUnknown},
		{"burst", sized(t, 2<<20-labels), "", 0},
		{"over burst", sized(t, 2<<20-labels+1), ReasonBurst, connect.CodeResourceExhausted},
		{"largest", zipped(t, sized(t, 4<<20)), ReasonBurst, connect.CodeResourceExhausted},
		{"too large", zipped(t, sized(t, 4<<20+1)), ReasonTooLarge, connect.CodeInvalidArgument},
		{"too large plain", sized(t, 4<<20+1), ReasonTooLarge, connect.CodeInvalidArgument},
		{"bomb", zipped(t, make([]byte, 256<<20)), ReasonTooLarge, connect.CodeInvalidArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := convert(t, push(row.raw, "__name__", "gpu"))
			if row.want != "" {
				wantRefusal(t, err, row.want, row.code)
			} else if err != nil || len(got) != 2 {
				t.Errorf("%d profiles, %v", len(got), err)
			}
		})
	}
}

func TestNilSeries(t *testing.T) {
	_, err := convert(t, nil)
	wantRefusal(t, err, ReasonMissingName, connect.CodeInvalidArgument)
	_, err = Convert(&pushv1.RawProfileSeries{Labels: push(nil, "__name__", "gpu").Labels}, now)
	wantRefusal(t, err, ReasonNoProfiles, connect.CodeInvalidArgument)
	if got, err := convert(t, push(nil, "__name__", "gpu")); got != nil || err == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzConvert(f *testing.F) {
	raw := marshal(f, simple())
	f.Add(raw, "pod", "a")
	f.Add(zipped(f, raw), "service_name", "")
	f.Fuzz(func(t *testing.T, raw []byte, name, value string) {
		s := push(raw, "__name__", "gpu", name, value)
		before := bytes.Clone(raw)
		got, err := convert(t, s)
		if err != nil {
			if got != nil {
				t.Error("the one profile is both taken and refused")
			}
			if _, ok := errors.AsType[*Refusal](err); !ok {
				t.Errorf("error %v is not a refusal", err)
			}
		}
		for _, p := range got {
			if len(p.Samples) == 0 {
				t.Error("profile without samples")
			}
			for i, l := range p.Labels {
				if i > 0 && p.Labels[i-1].Name >= l.Name {
					t.Errorf("labels are not sorted: %v", p.Labels)
				}
			}
			for _, s := range p.Samples {
				if s.Value <= 0 {
					t.Errorf("value %d", s.Value)
				}
			}
		}
		if !bytes.Equal(raw, before) {
			t.Error("the bytes of the push were changed")
		}
	})
}
