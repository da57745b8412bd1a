// Package stack puts the native and the Python walk of one stack together.
//
// The two walks are independent: native frames carry their CFA, Python frames know nothing of the C stack. What joins them
// is the marker that an interpreter leaves wherever C code enters it: the CFrame or, from 3.12 on, a shim frame. It is a
// local variable of the evaluator, so its address, the anchor, lies in the evaluator's stack frame. Stacks grow down:
// a native frame spans [CFA of the frame it called, its own CFA). The Python frames that ran in one evaluator, up to and
// with the one that has the anchor, go directly inside the native frame whose span holds the anchor. This needs no
// symbol, so it does not matter how the evaluator is named, inlined, split or laid out.
//
// What does not fit is kept and marked, never dropped and never credited to a place that was guessed: Python frames whose
// anchor no native frame holds, because the native walk ended before, and those without an anchor, because the Python walk
// did, keep their order among the Python frames and are Unplaced. They come before the next that has a place, or
// outermost.
package stack

// Native is a frame of the native walk.
type Native struct {
	// CFA is the canonical frame address: the stack pointer before the call that made the frame.
	CFA uint64
}

// Python is a frame of the Python walk.
type Python struct {
	// Anchor is the stack address of the marker in the evaluator that this frame is the outermost of; 0 of all others.
	Anchor uint64
	// Shim says that it is itself the marker and no frame of the program.
	Shim bool
}

// Frame is one frame of the whole stack.
type Frame struct {
	// Native and Python are indexes into what was merged. One of them is -1.
	Native, Python int
	// Unplaced says that this Python frame ran on this stack, but that it is not known which native frame it ran in.
	Unplaced bool
}

// Merge makes one stack of two, innermost frame first, as they are. Shim frames are left out; every other frame is there
// once.
func Merge(native []Native, python []Python) []Frame {
	out := make([]Frame, 0, len(native)+len(python))
	take := func(from, to int, unplaced bool) {
		for i := from; i < to; i++ {
			if !python[i].Shim {
				out = append(out, Frame{Native: -1, Python: i, Unplaced: unplaced})
			}
		}
	}
	next := 0 // the first Python frame that is not out yet
	for i, f := range native {
		// The innermost frame is the probed function, which is no evaluator; where its stack begins is not known.
		if i > 0 {
			for {
				entry, first, found := anchored(python, next, native[i-1].CFA, f.CFA)
				if !found {
					break
				}
				take(next, first, true)
				take(first, entry+1, false)
				next = entry + 1
			}
		}
		out = append(out, Frame{Native: i, Python: -1})
	}
	take(next, len(python), true)
	return out
}

// anchored finds the frame from next on whose anchor is in a span of stack, and the first frame of its evaluator.
func anchored(python []Python, next int, low, high uint64) (entry, first int, found bool) {
	first = next
	for i := next; i < len(python); i++ {
		a := python[i].Anchor
		if a == 0 {
			continue
		}
		if low <= a && a < high {
			return i, first, true
		}
		first = i + 1
	}
	return 0, 0, false
}
