package push

import (
	"bytes"

	pprof "github.com/google/pprof/profile"
)

// halves splits an encoded profile in two by its samples. ok is false if there is nothing to split.
func halves(profile []byte) (out [2][]byte, ok bool) {
	for i := range out {
		p, err := pprof.ParseUncompressed(profile)
		if err != nil || len(p.Sample) < 2 {
			return out, false
		}
		if half := len(p.Sample) / 2; i == 0 {
			p.Sample = p.Sample[:half]
		} else {
			p.Sample = p.Sample[half:]
		}
		var b bytes.Buffer
		if err := p.Compact().WriteUncompressed(&b); err != nil {
			return out, false
		}
		out[i] = b.Bytes()
	}
	return out, true
}
