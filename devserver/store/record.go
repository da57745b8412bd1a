package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/vramprof/vramprof/internal/profiles"
)

// A record's payload is the identity of one profile, which is all that Open has
// to read, and its body. Numbers are varints, strings have their length in front.
//
//	labels    count, then name and value of each that a series has
//	series    count, then of each the count of its labels, their places above, and its total
//	time      nanoseconds, signed
//	duration  nanoseconds, signed
//	size      bytes of the body before compression
//	body      zstd
//
// The body has a table of strings, a table of frames that refer to it, and the
// samples, whose stacks refer to the frames and whose values are those of the
// series.

// maxBody bounds a body, and with it the memory that a damaged record can take.
// The server's rules admit about 2 MiB of pprof, which fits several times over.
const maxBody = 16 << 20

// maxIdentity is the room of everything before the body. A series has at most 30
// labels of 3 KiB each by the server's rules, and a few that the server adds.
const maxIdentity = 256 << 10

var errRecord = errors.New("malformed record")

// codec makes and reads payloads. It may be used from any goroutine.
type codec struct {
	compressor   *zstd.Encoder
	decompressor *zstd.Decoder
}

func newCodec() (codec, error) {
	// The window is large enough to find a name again in any profile of usual size.
	compressor, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(512<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		return codec{}, fmt.Errorf("make compressor: %w", err)
	}
	decompressor, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return codec{}, fmt.Errorf("make decompressor: %w", err)
	}
	return codec{compressor, decompressor}, nil
}

// encode expects a profile that passed its check.
func (c codec) encode(dst []byte, p *profiles.Profile) ([]byte, error) {
	start := len(dst)
	dst = encodeIdentity(dst, p)
	if n := len(dst) - start; n > maxIdentity-binary.MaxVarintLen64 {
		return dst[:start], fmt.Errorf("%w: labels of %d bytes, limit %d: push fewer types or labels", ErrTooLarge, n, maxIdentity)
	}
	body := encodeBody(p.Frames, p.Samples)
	if len(body) > maxBody {
		return dst[:start], fmt.Errorf("%w: profile of %d bytes, limit %d: push it in parts", ErrTooLarge, len(body), maxBody)
	}
	return c.compressor.EncodeAll(body, binary.AppendUvarint(slices.Grow(dst, len(body)/4), uint64(len(body)))), nil
}

func encodeIdentity(dst []byte, p *profiles.Profile) []byte {
	places := map[profiles.Label]uint64{}
	var table, series []byte
	for i, labels := range p.Series {
		series = binary.AppendUvarint(series, uint64(len(labels)))
		for _, l := range labels {
			place, ok := places[l]
			if !ok {
				place = uint64(len(places))
				places[l] = place
				table = appendString(appendString(table, l.Name), l.Value)
			}
			series = binary.AppendUvarint(series, place)
		}
		series = binary.AppendVarint(series, p.Total(i))
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(places))), table...)
	dst = append(binary.AppendUvarint(dst, uint64(len(p.Series))), series...)
	return binary.AppendVarint(binary.AppendVarint(dst, p.TimeNanos), p.DurationNanos)
}

func encodeBody(frames []profiles.Frame, samples []profiles.Sample) []byte {
	places := make(map[string]uint64, 2*len(frames))
	table, list := make([]byte, 0, 64*len(frames)), make([]byte, 0, 12*len(frames))
	for _, f := range frames {
		for _, s := range [...]string{f.Function, f.SystemName, f.File, f.Mapping, f.BuildID} {
			place, ok := places[s]
			if !ok {
				place = uint64(len(places))
				places[s] = place
				table = appendString(table, s)
			}
			list = binary.AppendUvarint(list, place)
		}
		inlined := uint64(0)
		if f.Inlined {
			inlined = 1
		}
		list = binary.AppendUvarint(binary.AppendVarint(binary.AppendVarint(list, f.Line), f.StartLine), inlined)
	}
	size := len(table) + len(list) + 3*binary.MaxVarintLen64
	for _, s := range samples {
		size += 2 + 2*len(s.Stack) + 5*len(s.Values) // most often enough
	}
	b := append(binary.AppendUvarint(make([]byte, 0, size), uint64(len(places))), table...)
	b = append(binary.AppendUvarint(b, uint64(len(frames))), list...)
	b = binary.AppendUvarint(b, uint64(len(samples)))
	for _, s := range samples {
		b = binary.AppendUvarint(b, uint64(len(s.Stack)))
		for _, f := range s.Stack {
			b = binary.AppendUvarint(b, uint64(f))
		}
		for _, v := range s.Values {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

// identity is what a payload says before its body.
type identity struct {
	series          []profiles.Labels
	totals          []int64
	nanos, duration int64
	size            uint64
	body            []byte // compressed
}

func decodeIdentity(payload []byte) (identity, error) {
	r := reader{b: string(payload[:min(len(payload), maxIdentity)])}
	table := make([]profiles.Label, r.count(2))
	for i := range table {
		table[i] = profiles.Label{Name: r.string(), Value: r.string()}
	}
	var id identity
	for range r.count(2) {
		labels := make(profiles.Labels, r.count(1))
		for i := range labels {
			place := r.uvarint()
			if place >= uint64(len(table)) {
				return identity{}, errRecord
			}
			labels[i] = table[place]
		}
		if err := labels.Check(); err != nil {
			return identity{}, fmt.Errorf("%w: %w", errRecord, err)
		}
		id.series, id.totals = append(id.series, labels), append(id.totals, r.varint())
	}
	id.nanos, id.duration, id.size = r.varint(), r.varint(), r.uvarint()
	if r.bad || id.size > maxBody {
		return identity{}, errRecord
	}
	id.body = payload[r.at:]
	return id, nil
}

// decode reads what one series of a payload says.
func (c codec) decode(payload []byte, series int) (*profiles.Selected, error) {
	id, err := decodeIdentity(payload)
	if err != nil {
		return nil, err
	}
	if series >= len(id.series) {
		return nil, fmt.Errorf("%w: series %d of %d", errRecord, series, len(id.series))
	}
	body, err := c.decompressor.DecodeAll(id.body, make([]byte, 0, id.size))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if uint64(len(body)) != id.size {
		return nil, fmt.Errorf("%w: body is not of its stated size %d", errRecord, id.size)
	}
	p := &profiles.Selected{Labels: id.series[series], TimeNanos: id.nanos, DurationNanos: id.duration}
	p.Frames, p.Stacks, err = decodeBody(string(body), series, len(id.series))
	return p, err
}

func decodeBody(body string, series, of int) ([]profiles.Frame, []profiles.Stack, error) {
	r := reader{b: body}
	table := make([]string, r.count(1))
	for i := range table {
		table[i] = r.string()
	}
	pick := func() string {
		if i := r.uvarint(); i < uint64(len(table)) {
			return table[i]
		}
		r.bad = true
		return ""
	}
	frames := make([]profiles.Frame, r.count(8))
	for i := range frames {
		frames[i] = profiles.Frame{
			Function: pick(), SystemName: pick(), File: pick(), Mapping: pick(), BuildID: pick(),
			Line: r.varint(), StartLine: r.varint(), Inlined: r.uvarint() == 1,
		}
	}
	n := r.count(1 + of)
	stacks := make([]profiles.Stack, 0, n)
	arena := make([]uint32, 0, len(r.b)-r.at) // every place takes a byte or more
	for range n {
		start := len(arena)
		for range r.count(1) {
			f := r.uvarint()
			if f >= uint64(len(frames)) {
				return nil, nil, errRecord
			}
			arena = append(arena, uint32(f))
		}
		var value int64
		for i := range of {
			if v := r.varint(); i == series {
				value = v
			}
		}
		if value == 0 {
			arena = arena[:start]
			continue
		}
		stacks = append(stacks, profiles.Stack{Frames: arena[start:len(arena):len(arena)], Value: value})
	}
	if r.bad || r.at != len(r.b) {
		return nil, nil, errRecord
	}
	return frames, stacks, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes numbers and strings off b. After a failure it is bad and gives
// zeros, so that callers check once.
type reader struct {
	b   string
	at  int
	bad bool
}

func (r *reader) uvarint() uint64 {
	if !r.bad && r.at < len(r.b) && r.b[r.at] < 0x80 { // most are of one byte
		r.at++
		return uint64(r.b[r.at-1])
	}
	var v uint64
	for shift := 0; shift < 64 && !r.bad; shift += 7 {
		if r.at >= len(r.b) {
			break
		}
		c := r.b[r.at]
		r.at++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count is a number of things of at least size bytes each, all of which have to
// be in what is left.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64((len(r.b)-r.at)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) string() string {
	n := r.count(1)
	s := r.b[r.at : r.at+n]
	r.at += n
	return s
}
