package store

import (
	"cmp"
	"slices"
	"strings"
)

// Label is one name and value of a series.
type Label struct{ Name, Value string }

// Labels identify a series. They are sorted by name and each name is there once.
type Labels []Label

// Get returns the value of the label name, and whether it is present: an empty
// value is allowed.
func (ls Labels) Get(name string) (string, bool) {
	i, ok := slices.BinarySearchFunc(ls, name, func(l Label, name string) int { return cmp.Compare(l.Name, name) })
	if !ok {
		return "", false
	}
	return ls[i].Value, true
}

// Frame is one source line of one location of a stack.
type Frame struct {
	// Function is the name to show; SystemName is the name in the symbol table.
	Function, SystemName string
	// File is the path of the source, or empty.
	File string
	// Line is counted from 1; 0 is unknown.
	Line int64
	// Mapping is the path of the object that holds the code, and BuildID its
	// build ID in hex; either may be empty.
	Mapping, BuildID string
}

// Sample is a value and the stack it belongs to.
type Sample struct {
	// Stack has the innermost frame first, inlined functions as frames of their own.
	Stack []Frame
	Value int64
}

// Profile is what one series said at one time. It has one profile type, which is
// the label __profile_type__.
type Profile struct {
	Labels Labels
	// TimeNanos is in nanoseconds of Unix time. Labels and TimeNanos together are
	// the identity of a profile.
	TimeNanos     int64
	DurationNanos int64
	Samples       []Sample
}

// key is the labels as one string, which tells any two sets apart: NUL-free
// lengths are not needed because every part carries its length.
func (ls Labels) key() string {
	var b strings.Builder
	for _, l := range ls {
		writePart(&b, l.Name)
		writePart(&b, l.Value)
	}
	return b.String()
}

func writePart(b *strings.Builder, s string) {
	n := len(s)
	b.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	b.WriteString(s)
}
