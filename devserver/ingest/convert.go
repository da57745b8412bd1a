package ingest

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"time"

	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/klauspost/compress/gzip"

	"github.com/vramprof/vramprof/internal/profiles"
)

// The server's default limits (its pkg/validation/limits.go).
const (
	// MaxProfileBytes bounds one profile, uncompressed.
	MaxProfileBytes = 4 << 20
	// MaxBurstBytes bounds one profile, uncompressed, with its labels: the server
	// never lets more than this through at once.
	MaxBurstBytes = 2 << 20
	// MaxSamples bounds the samples of one profile.
	MaxSamples = 16000
	// MaxLabels bounds the labels of a series with the string labels of samples;
	// MaxLabelName and MaxLabelValue are in bytes.
	MaxLabels     = 30
	MaxLabelName  = 1024
	MaxLabelValue = 2048
	// MaxDepth bounds the locations of a stack: those nearest the root are kept.
	MaxDepth = 1000
	// MaxAge and MaxAhead are how far a profile's time may be from the server's.
	MaxAge   = time.Hour
	MaxAhead = 10 * time.Minute

	maxSampleLabels = 100
	maxSymbol       = 65535
	// maxFrames bounds the frames of all stacks of a profile together. It is not
	// the server's: inlined lines and repeated locations can make a small profile
	// into very many frames, and here each has its place in memory. A profile
	// within MaxBurstBytes does not reach it without such tricks.
	maxFrames = 2 << 20
	// maxSeries bounds what one profile splits into, for the same reason: four
	// sample types, and string labels of their own on every sample.
	maxSeries = 4 * MaxSamples
)

// Convert makes of one pushed series what the server stores: a profile for each
// distinct set of string labels on samples, with a series for each sample type and
// the labels that the server adds. Samples with a negative value are dropped for all types,
// equal stacks are summed, and a type without a value other than 0 gives nothing.
//
// The error is a *Refusal. The profiles of a series are taken one by one: those
// returned beside an error are good, and the error is that of the first bad one.
func Convert(series *pushv1.RawProfileSeries, now time.Time) ([]profiles.Profile, error) {
	labels, err := seriesLabels(series.GetLabels())
	if err != nil {
		return nil, err
	}
	if len(series.GetSamples()) == 0 {
		return nil, refuse(ReasonNoProfiles, "no profiles received: the series has no samples")
	}
	var all []profiles.Profile
	var first error
	for _, raw := range series.GetSamples() {
		good, err := convertOne(labels, raw.GetRawProfile(), now)
		if err != nil && first == nil {
			first = err
		}
		all = append(all, good...)
	}
	return all, first
}

func convertOne(labels map[string]string, raw []byte, now time.Time) ([]profiles.Profile, error) {
	raw, err := decompress(raw)
	if err != nil {
		return nil, err
	}
	size := len(raw)
	for name, value := range labels {
		size += len(name) + len(value)
	}
	if size > MaxBurstBytes {
		return nil, refuse(ReasonBurst, "profile with labels has %d bytes uncompressed, over the burst of %d, and never will be accepted: push it in parts", size, MaxBurstBytes)
	}
	var p googlev1.Profile
	if err := p.UnmarshalVT(raw); err != nil {
		return nil, refuse(ReasonUndecodable, "decode pprof: %v", err)
	}
	if err := check(&p); err != nil {
		return nil, err
	}
	if err := checkTime(&p, now); err != nil {
		return nil, err
	}
	return split(&p, labels)
}

func decompress(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, refuse(ReasonUndecodable, "profile is empty: send pprof, plain or in gzip")
	}
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		in, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, refuse(ReasonUndecodable, "gunzip profile: %v", err)
		}
		// The trailer says the size (RFC 1952); it is only a hint, so it is bounded.
		hint := binary.LittleEndian.Uint32(raw[max(0, len(raw)-4):])
		var out bytes.Buffer
		out.Grow(int(min(hint, MaxProfileBytes)) + bytes.MinRead)
		if _, err := out.ReadFrom(io.LimitReader(in, MaxProfileBytes+1)); err != nil {
			return nil, refuse(ReasonUndecodable, "gunzip profile: %v", err)
		}
		raw = out.Bytes()
	}
	if len(raw) > MaxProfileBytes {
		return nil, refuse(ReasonTooLarge, "profile is over %d bytes uncompressed: push it in parts", MaxProfileBytes)
	}
	return raw, nil
}

// checkTime puts the server's time in a profile that has none.
func checkTime(p *googlev1.Profile, now time.Time) error {
	if p.TimeNanos <= 0 {
		p.TimeNanos = now.UnixNano()
		return nil
	}
	at := time.Unix(0, p.TimeNanos)
	switch {
	case at.Before(now.Add(-MaxAge)):
		return refuse(ReasonTooOld, "profile of %s is outside of the ingestion window, more than %s old: send it sooner or check the clock", at.UTC().Format(time.RFC3339), MaxAge)
	case at.After(now.Add(MaxAhead)):
		return refuse(ReasonTooNew, "profile of %s is outside of the ingestion window, more than %s ahead: check the clock", at.UTC().Format(time.RFC3339), MaxAhead)
	}
	return nil
}

// group is the samples of one set of labels.
type group struct {
	labels  map[string]string
	stacks  map[string]int
	samples []profiles.Sample
}

func split(p *googlev1.Profile, series map[string]string) ([]profiles.Profile, error) {
	stacks := newStacks(p)
	byLabels := map[string]*group{}
	var groups []*group
	var key []byte
	for _, s := range p.Sample {
		if !useful(s.Value) {
			continue
		}
		own, err := sampleLabels(s, p.StringTable, series)
		if err != nil {
			return nil, err
		}
		key = key[:0]
		for _, l := range own {
			key = appendPart(appendPart(key, l.Name), l.Value)
		}
		g := byLabels[string(key)]
		if g == nil {
			g = &group{labels: maps.Clone(series), stacks: map[string]int{}}
			for _, l := range own {
				g.labels[l.Name] = l.Value
			}
			if err := checkLabels(g.labels); err != nil {
				return nil, err
			}
			byLabels[string(key)] = g
			groups = append(groups, g)
		}
		stack, err := stacks.stack(s.LocationId)
		if err != nil {
			return nil, err
		}
		key = key[:0]
		for _, f := range stack {
			key = binary.LittleEndian.AppendUint32(key, f)
		}
		g.add(key, stack, s.Value)
	}
	var out []profiles.Profile
	count := 0
	for _, g := range groups {
		one := g.profile(p)
		if one.Frames = stacks.frames; len(groups) > 1 {
			one.Frames = g.compact(stacks.frames)
		}
		if count += len(one.Series); count > maxSeries {
			return nil, refuse(ReasonTooManySeries, "profile splits into over %d series: send fewer sample types or fewer labels on samples", maxSeries)
		}
		out = append(out, one)
	}
	return out, nil
}

// profile has the types of which some value is not 0.
func (g *group) profile(p *googlev1.Profile) profiles.Profile {
	out := profiles.Profile{TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos, Samples: g.samples}
	text := func(i int64) string { return p.StringTable[i] }
	period := p.GetPeriodType() // may be nil: its strings are then empty
	var kept []int
	for i, t := range p.SampleType {
		if slices.ContainsFunc(g.samples, func(s profiles.Sample) bool { return s.Values[i] != 0 }) {
			kept = append(kept, i)
			out.Series = append(out.Series, typed(g.labels, text(t.Type), text(t.Unit), text(period.GetType()), text(period.GetUnit())))
		}
	}
	if len(kept) < len(p.SampleType) {
		for i := range g.samples {
			values := make([]int64, len(kept))
			for j, k := range kept {
				values[j] = g.samples[i].Values[k]
			}
			g.samples[i].Values = values
		}
	}
	return out
}

// compact leaves the frames that the group's stacks refer to.
func (g *group) compact(frames []profiles.Frame) []profiles.Frame {
	places := map[uint32]uint32{}
	var kept []profiles.Frame
	for _, s := range g.samples {
		for i, f := range s.Stack {
			place, ok := places[f]
			if !ok {
				place = uint32(len(kept))
				places[f] = place
				kept = append(kept, frames[f])
			}
			s.Stack[i] = place
		}
	}
	return kept
}

// useful says whether a sample counts: no value is negative, and one is not 0.
func useful(values []int64) bool {
	some := false
	for _, v := range values {
		if v < 0 {
			return false
		}
		some = some || v > 0
	}
	return some
}

// add sums equal stacks. A sum over the largest number stays at it.
func (g *group) add(key []byte, stack []uint32, values []int64) {
	i, ok := g.stacks[string(key)]
	if !ok {
		g.stacks[string(key)] = len(g.samples)
		g.samples = append(g.samples, profiles.Sample{Stack: stack, Values: values})
		return
	}
	have := g.samples[i].Values
	for j, v := range values {
		have[j] = profiles.Add(have[j], v)
	}
}
