package server

import (
	"sync/atomic"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// Kind tells uploads apart. Its text is a metric label.
type Kind int

// The kinds of uploads.
const (
	Object Kind = iota
	Code
	kinds
)

func (k Kind) String() string { return [...]string{"object", "code"}[k] }

// Result is how an upload ended. Its text is a metric label.
type Result int

// The results of uploads.
const (
	Stored  Result = iota
	Known          // there already, or nothing better
	Refused        // the request is at fault
	Aborted        // the client went away
	Failed         // the service is at fault
	results
)

func (r Result) String() string {
	return [...]string{"stored", "known", "refused", "aborted", "failed"}[r]
}

// LocationKind tells the locations of one language from the other's. Its text is a metric label.
type LocationKind int

// The kinds of locations.
const (
	Native LocationKind = iota
	Python
	locationKinds
)

func (k LocationKind) String() string { return [...]string{"native", "python"}[k] }

// counters count what was done since the start.
type counters struct {
	locations [locationKinds][statuses]atomic.Uint64
	uploads   [kinds][results]atomic.Uint64
	bytes     atomic.Uint64
}

// statuses is the number of values of symbolizerv1.Status.
const statuses = int(symbolizerv1.Status_STATUS_INVALID) + 1

func (c *counters) symbolized(r *symbolizerv1.SymbolizeResponse) {
	for kind, locations := range [locationKinds][]*symbolizerv1.Location{r.GetNative(), r.GetPython()} {
		var n [statuses]uint64
		for _, l := range locations {
			n[l.GetStatus()]++
		}
		for status, n := range n {
			c.locations[kind][status].Add(n)
		}
	}
}

func (c *counters) uploaded(k Kind, r Result, bytes int64) {
	c.uploads[k][r].Add(1)
	c.bytes.Add(uint64(bytes))
}

func (c *counters) uploadedCodes(stored, known int) {
	c.uploads[Code][Stored].Add(uint64(stored))
	c.uploads[Code][Known].Add(uint64(known))
}

// Counts visits the counters: locations answered by kind and status, uploads by kind and result (of code objects, each one
// of a batch), and the bytes of uploaded objects.
func (s *Server) Counts(location func(LocationKind, symbolizerv1.Status, uint64), upload func(Kind, Result, uint64)) (objectBytes uint64) {
	for k := range s.counters.locations {
		for status := range s.counters.locations[k] {
			if symbolizerv1.Status(status) != symbolizerv1.Status_STATUS_UNSPECIFIED {
				location(LocationKind(k), symbolizerv1.Status(status), s.counters.locations[k][status].Load())
			}
		}
	}
	for k := range s.counters.uploads {
		for r := range s.counters.uploads[k] {
			upload(Kind(k), Result(r), s.counters.uploads[k][r].Load())
		}
	}
	return s.counters.bytes.Load()
}
