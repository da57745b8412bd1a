package push

import "time"

// pace says when the server may be tried. After a failure it is left alone for a time that doubles with each further one,
// and then tried with a single profile; when that succeeds all go on. So a server that is down or overwhelmed is asked by
// one profile at a time, however many wait.
type pace struct {
	failures   int // in a row; of attempts that were under way together, one counts
	generation int // of failures: tells attempts that began before the last from those after
	at         time.Time
	full       bool // said that the queue is full, since the last outage ended
	sending    int  // attempts under way
}

// The pauses begin at minPause and double up to maxPause; each is drawn from its upper half, so that agents that failed
// together do not come back together.
const (
	minPause = time.Second
	maxPause = 30 * time.Second
)

func pause(failures int, random float64) time.Duration {
	d := min(minPause<<min(failures, 10), maxPause)
	return d/2 + time.Duration(random*float64(d/2))
}

// allows tells whether an attempt may begin, or when one may; zero for when another ends.
func (p *pace) allows(now time.Time, concurrency int) (bool, time.Time) {
	switch {
	case now.Before(p.at):
		return false, p.at
	case p.sending >= concurrency, p.failures > 0 && p.sending > 0:
		return false, time.Time{}
	}
	return true, time.Time{}
}

// succeeded notes the success of an attempt of a generation, and tells whether it ends an outage.
func (p *pace) succeeded(generation int) bool {
	if generation != p.generation || p.failures == 0 {
		return false
	}
	p.failures, p.full = 0, false
	return true
}

// failed notes a failure of an attempt of a generation, and tells whether it begins an outage. The server asked to be left
// alone for a time, at least.
func (p *pace) failed(generation int, now time.Time, after time.Duration, random float64) bool {
	wait := pause(p.failures, random)
	if generation != p.generation {
		wait = 0 // counted already
	} else {
		p.failures++
		p.generation++
	}
	if after > 0 {
		wait = max(wait, after+time.Duration(random*float64(after)/10))
	}
	if at := now.Add(wait); at.After(p.at) {
		p.at = at
	}
	return generation == p.generation-1 && p.failures == 1
}
