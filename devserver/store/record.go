package store

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A record's payload is the identity of one profile, which is all that Open has
// to read, and its body, deflated. Numbers are varints, strings have their length
// in front.
//
//	labels    count, then name and value of each
//	time      nanoseconds, signed
//	duration  nanoseconds, signed
//	size      bytes of the body before deflate
//	body      deflated
//
// The body has a table of strings, a table of frames that refer to it, and the
// samples, whose stacks refer to the frames.

// maxBody bounds a body, and with it the memory that a damaged record can take.
// The server's rules admit about 2 MiB of pprof, which fits several times over.
const maxBody = 16 << 20

var errRecord = errors.New("malformed record")

// codec makes and reads payloads. It holds the state of deflate, which is large,
// for use again.
type codec struct{ deflaters, inflaters sync.Pool }

func (c *codec) encode(dst []byte, p *Profile) ([]byte, error) {
	body := encodeBody(p.Samples)
	if len(body) > maxBody {
		return dst, fmt.Errorf("profile of %d bytes is over the %d that a record holds: push it in parts", len(body), maxBody)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.Labels)))
	for _, l := range p.Labels {
		dst = appendString(appendString(dst, l.Name), l.Value)
	}
	dst = binary.AppendVarint(dst, p.TimeNanos)
	dst = binary.AppendVarint(dst, p.DurationNanos)
	dst = binary.AppendUvarint(dst, uint64(len(body)))

	out := bytes.NewBuffer(dst)
	w, ok := c.deflaters.Get().(*flate.Writer)
	if ok {
		w.Reset(out)
	} else {
		var err error
		if w, err = flate.NewWriter(out, flate.BestSpeed); err != nil {
			return dst, fmt.Errorf("deflate: %w", err)
		}
	}
	defer c.deflaters.Put(w)
	if _, err := w.Write(body); err != nil {
		return dst, fmt.Errorf("deflate: %w", err)
	}
	if err := w.Close(); err != nil {
		return dst, fmt.Errorf("deflate: %w", err)
	}
	return out.Bytes(), nil
}

func encodeBody(samples []Sample) []byte {
	var stringsPart, framesPart, samplesPart []byte
	stringIndex, frameIndex := map[string]uint64{}, map[Frame]uint64{}
	addString := func(s string) uint64 {
		i, ok := stringIndex[s]
		if !ok {
			i = uint64(len(stringIndex))
			stringIndex[s] = i
			stringsPart = appendString(stringsPart, s)
		}
		return i
	}
	addFrame := func(f Frame) uint64 {
		i, ok := frameIndex[f]
		if !ok {
			i = uint64(len(frameIndex))
			frameIndex[f] = i
			for _, s := range [...]string{f.Function, f.SystemName, f.File, f.Mapping, f.BuildID} {
				framesPart = binary.AppendUvarint(framesPart, addString(s))
			}
			framesPart = binary.AppendVarint(framesPart, f.Line)
		}
		return i
	}
	for _, s := range samples {
		samplesPart = binary.AppendVarint(samplesPart, s.Value)
		samplesPart = binary.AppendUvarint(samplesPart, uint64(len(s.Stack)))
		for _, f := range s.Stack {
			samplesPart = binary.AppendUvarint(samplesPart, addFrame(f))
		}
	}
	b := append(binary.AppendUvarint(nil, uint64(len(stringIndex))), stringsPart...)
	b = append(binary.AppendUvarint(b, uint64(len(frameIndex))), framesPart...)
	return append(binary.AppendUvarint(b, uint64(len(samples))), samplesPart...)
}

// decodeIdentity reads a payload without its body.
func decodeIdentity(payload []byte) (p Profile, size uint64, deflated []byte, err error) {
	r := reader{b: string(payload[:min(len(payload), maxIdentity)])}
	n := r.count(2)
	p.Labels = make(Labels, 0, n)
	for range n {
		p.Labels = append(p.Labels, Label{Name: r.string(), Value: r.string()})
	}
	p.TimeNanos, p.DurationNanos = r.varint(), r.varint()
	size = r.uvarint()
	if r.bad || size > maxBody {
		return Profile{}, 0, nil, errRecord
	}
	if err := p.Labels.check(); err != nil {
		return Profile{}, 0, nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return p, size, payload[r.at:], nil
}

// maxIdentity is the room of everything before the body. A series has at most 30
// labels of 3 KiB each by the server's rules, and a few that the server adds.
const maxIdentity = 256 << 10

func (c *codec) decode(payload []byte) (*Profile, error) {
	p, size, deflated, err := decodeIdentity(payload)
	if err != nil {
		return nil, err
	}
	src := bytes.NewReader(deflated)
	in, ok := c.inflaters.Get().(io.ReadCloser)
	if !ok {
		in = flate.NewReader(src)
	} else if err := in.(flate.Resetter).Reset(src, nil); err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	defer c.inflaters.Put(in)
	var body bytes.Buffer
	n, err := io.Copy(&body, io.LimitReader(in, int64(size)+1))
	if err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	if uint64(n) != size {
		return nil, fmt.Errorf("%w: body is not of its stated size %d", errRecord, size)
	}
	p.Samples, err = decodeBody(body.String())
	return &p, err
}

func decodeBody(body string) ([]Sample, error) {
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
	frames := make([]Frame, r.count(6))
	for i := range frames {
		frames[i] = Frame{Function: pick(), SystemName: pick(), File: pick(), Mapping: pick(), BuildID: pick(), Line: r.varint()}
	}
	samples := make([]Sample, r.count(2))
	for i := range samples {
		samples[i].Value = r.varint()
		stack := make([]Frame, 0, r.count(1))
		for range cap(stack) {
			f := r.uvarint()
			if f >= uint64(len(frames)) {
				return nil, errRecord
			}
			stack = append(stack, frames[f])
		}
		samples[i].Stack = stack
	}
	if r.bad || r.at != len(r.b) {
		return nil, errRecord
	}
	return samples, nil
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
