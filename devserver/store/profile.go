package store

import (
	"cmp"
	"fmt"
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

// key is the labels as one string. Every part carries its length, so two sets
// never give the same one.
func (ls Labels) key() string {
	var b []byte
	for _, l := range ls {
		b = appendString(appendString(b, l.Name), l.Value)
	}
	return string(b)
}

// check says what is wrong with the labels as the identity of a series.
func (ls Labels) check() error {
	for i := 1; i < len(ls); i++ {
		if ls[i-1].Name >= ls[i].Name {
			return fmt.Errorf("labels %q and %q are not sorted by name or are the same", ls[i-1].Name, ls[i].Name)
		}
	}
	return nil
}

func (ls Labels) compare(other Labels) int {
	return slices.CompareFunc(ls, other, func(a, b Label) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
}
