// Package profiles holds the plain values that the stations of the development
// server hand to each other: label sets, frames, and profiles of one label set at
// one time.
package profiles

import (
	"cmp"
	"encoding/binary"
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

// Key is the labels as one string. Every part carries its length, so two sets
// never give the same one.
func (ls Labels) Key() string {
	var b []byte
	for _, l := range ls {
		for _, s := range [...]string{l.Name, l.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return string(b)
}

// Check says what is wrong with the labels as the identity of a series.
func (ls Labels) Check() error {
	for i := 1; i < len(ls); i++ {
		if ls[i-1].Name >= ls[i].Name {
			return fmt.Errorf("labels %q and %q are not sorted by name or are the same", ls[i-1].Name, ls[i].Name)
		}
	}
	return nil
}

// Compare orders label sets by their first difference.
func (ls Labels) Compare(other Labels) int {
	return slices.CompareFunc(ls, other, func(a, b Label) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
}

// Frame is one source line of one location of a stack.
type Frame struct {
	// Function is the name to show; SystemName is the name in the symbol table.
	Function, SystemName string
	// File is the path of the source, or empty.
	File string
	// Line is counted from 1, and StartLine is that of the function; 0 is unknown.
	Line, StartLine int64
	// Mapping is the path of the object that holds the code, and BuildID its
	// build ID in hex; either may be empty.
	Mapping, BuildID string
	// Inlined says that the code is in the function of the next frame of the stack.
	Inlined bool
}

// Profile is what one push said of several series at one time: they share stacks.
type Profile struct {
	// Series has one label set for each value of a sample, with the profile type as
	// the label __profile_type__. A label set and TimeNanos are the identity of what
	// the series says.
	Series []Labels
	// TimeNanos is in nanoseconds of Unix time.
	TimeNanos     int64
	DurationNanos int64
	// Frames are what the stacks refer to.
	Frames  []Frame
	Samples []Sample
}

// Sample is a stack and its values, one for each series.
type Sample struct {
	// Stack indexes Frames, the innermost frame first; inlined functions are frames
	// of their own.
	Stack  []uint32
	Values []int64
}

// Check says whether the parts of a profile fit together.
func (p *Profile) Check() error {
	for _, ls := range p.Series {
		if err := ls.Check(); err != nil {
			return err
		}
	}
	for i, s := range p.Samples {
		if len(s.Values) != len(p.Series) {
			return fmt.Errorf("sample %d has %d values for %d series", i, len(s.Values), len(p.Series))
		}
		for _, f := range s.Stack {
			if int(f) >= len(p.Frames) {
				return fmt.Errorf("sample %d refers to frame %d of %d", i, f, len(p.Frames))
			}
		}
	}
	return nil
}

// Total is the sum of a series' values. A sum over the largest number stays at it.
func (p *Profile) Total(series int) int64 {
	var total int64
	for _, s := range p.Samples {
		total = Add(total, s.Values[series])
	}
	return total
}

// Selected is what one series of a profile says.
type Selected struct {
	Labels        Labels
	TimeNanos     int64
	DurationNanos int64
	// Frames may have more than the stacks refer to.
	Frames []Frame
	// Stacks has no value of 0.
	Stacks []Stack
}

// Stack is a stack and its value.
type Stack struct {
	// Frames index the frames of the selected profile, the innermost first.
	Frames []uint32
	Value  int64
}

// Add sums values. A sum beyond the largest or smallest number stays at it.
func Add(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return 1<<63 - 1
	case a < 0 && b < 0 && sum >= 0:
		return -1 << 63
	}
	return sum
}
