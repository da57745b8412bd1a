package store

import (
	"reflect"
	"testing"

	"github.com/vramprof/vramprof/internal/profiles"
)

// two is a profile of two series.
func two() profiles.Profile {
	p := profile("a", 7, 3, 4)
	p.Series = append(p.Series, profiles.Labels{{Name: "pod", Value: "a"}})
	for i := range p.Samples {
		p.Samples[i].Values = append(p.Samples[i].Values, int64(i))
	}
	return p
}

// FuzzRecord decodes any payload. What decodes says the same after it was encoded and decoded again.
func FuzzRecord(f *testing.F) {
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range []profiles.Profile{profile("a", 1, 3, 4), profile("b", -1, 40, 20), two()} {
		b, err := c.encode(nil, &p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 0)
		f.Add(b, 1)
	}
	f.Fuzz(func(t *testing.T, payload []byte, series int) {
		if series < 0 {
			return
		}
		p, err := c.decode(payload, series)
		if err != nil {
			return
		}
		kept := whole(p)
		again, err := c.encode(nil, &kept)
		if err != nil {
			t.Fatal(err)
		}
		q, err := c.decode(again, 0)
		if err != nil || !reflect.DeepEqual(whole(q), kept) {
			t.Errorf("decoded, encoded and decoded: %v, %v; want %v", q, err, kept)
		}
	})
}

// FuzzBody is FuzzRecord without compression in the way.
func FuzzBody(f *testing.F) {
	for _, p := range []profiles.Profile{profile("a", 1, 3, 4), two()} {
		f.Add(string(encodeBody(p.Frames, p.Samples)), 0, len(p.Series))
	}
	f.Fuzz(func(t *testing.T, body string, series, of int) {
		if series < 0 || of <= series || of > 100 {
			return
		}
		frames, stacks, err := decodeBody(body, series, of)
		if err != nil {
			return
		}
		kept := whole(&profiles.Selected{Frames: frames, Stacks: stacks})
		framesAgain, stacksAgain, err := decodeBody(string(encodeBody(kept.Frames, kept.Samples)), 0, 1)
		if err != nil || !reflect.DeepEqual(framesAgain, frames) || !reflect.DeepEqual(stacksAgain, stacks) {
			t.Errorf("decoded, encoded and decoded: %v, %v, %v; want %v, %v", framesAgain, stacksAgain, err, frames, stacks)
		}
	})
}
