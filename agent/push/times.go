package push

import (
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// times gives each profile of a series a time of its own: the server drops one of two that have the same, minutes after it
// took both (pkg/block/section_profiles.go).
type times struct {
	last    map[string]int64
	pruneAt int
}

// backwards is how far the clock may be set back before times begin anew: a time so far in the future is refused
// (validation.reject-newer-than).
const backwards = 9 * time.Minute

// unique gives at, or the next moment that the series has not had.
func (t *times) unique(series string, at time.Time) time.Time {
	n := at.UnixNano()
	if last, ok := t.last[series]; ok && n <= last && last-n < int64(backwards) {
		n = last + 1
	}
	if len(t.last) >= t.pruneAt {
		for k, last := range t.last {
			if n-last > int64(time.Hour) {
				delete(t.last, k)
			}
		}
		t.pruneAt = max(4096, 2*len(t.last))
	}
	t.last[series] = n
	return time.Unix(0, n)
}

// timeNanos is the number of Profile.time_nanos in profile.proto.
const timeNanos = 9

// withTime gives the encoded profile with another time in it; the same bytes if it has that time.
func withTime(profile []byte, at time.Time) ([]byte, error) {
	nanos, found := uint64(at.UnixNano()), 0
	same := true
	out := make([]byte, 0, len(profile)+16)
	for rest := profile; len(rest) > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(number, kind, rest[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		if number != timeNanos {
			out = append(out, rest[:tag+length]...)
		} else {
			v, n := protowire.ConsumeVarint(rest[tag:])
			found++
			same = same && kind == protowire.VarintType && n == length && v == nanos
		}
		rest = rest[tag+length:]
	}
	if len(profile) == 0 {
		return nil, errors.New("empty")
	}
	if found == 1 && same {
		return profile, nil
	}
	return protowire.AppendVarint(protowire.AppendTag(out, timeNanos, protowire.VarintType), nanos), nil
}
