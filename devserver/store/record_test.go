package store

import (
	"reflect"
	"testing"
)

func FuzzRecord(f *testing.F) {
	var c codec
	for _, p := range []Profile{{}, profile("a", 1, 3, 4), profile("b", -1, 40, 20)} {
		b, err := c.encode(nil, &p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := c.decode(payload)
		if err != nil {
			return
		}
		again, err := c.encode(nil, p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := c.decode(again); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("decoded, encoded and decoded: %v, %v; want %v", q, err, p)
		}
	})
}

// FuzzBody is FuzzRecord without deflate in the way.
func FuzzBody(f *testing.F) {
	f.Add(string(encodeBody(nil)))
	f.Add(string(encodeBody(profile("a", 1, 3, 4).Samples)))
	f.Fuzz(func(t *testing.T, body string) {
		samples, err := decodeBody(body)
		if err != nil {
			return
		}
		if again, err := decodeBody(string(encodeBody(samples))); err != nil || !reflect.DeepEqual(samples, again) {
			t.Errorf("decoded, encoded and decoded: %v, %v; want %v", again, err, samples)
		}
	})
}
