package store

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/profiles"
)

// index finds records by labels and time.
type index map[string]*series

type series struct {
	labels profiles.Labels
	// entries are sorted by time, each time once.
	entries []entry
}

// entry is what one series says at one time.
type entry struct {
	nanos int64
	record
	place int // of the series in the record
	total int64
}

func compareEntry(e entry, nanos int64) int { return cmp.Compare(e.nanos, nanos) }

func (x index) has(key string, nanos int64) bool {
	s := x[key]
	if s == nil {
		return false
	}
	_, ok := slices.BinarySearchFunc(s.entries, nanos, compareEntry)
	return ok
}

// add puts an entry in, unless one with the same labels and time is there.
func (x index) add(key string, labels profiles.Labels, e entry) {
	s := x[key]
	if s == nil {
		s = &series{labels: slices.Clone(labels)}
		x[key] = s
	}
	if i, ok := slices.BinarySearchFunc(s.entries, e.nanos, compareEntry); !ok {
		s.entries = slices.Insert(s.entries, i, e)
	}
}

// drop takes out every record of a segment.
func (x index) drop(seg *segment) {
	for key, s := range x {
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.segment == seg })
		if len(s.entries) == 0 {
			delete(x, key)
		}
	}
}

// between returns the entries from one time to another, both included.
func (s *series) between(from, to int64) []entry {
	i, _ := slices.BinarySearchFunc(s.entries, from, compareEntry)
	j, ok := slices.BinarySearchFunc(s.entries, to, compareEntry)
	if ok {
		j++
	}
	if i >= j {
		return nil
	}
	return s.entries[i:j]
}
