package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/integration/fakegpu"
	"github.com/vramprof/vramprof/integration/pythons"
)

func interpreters(t *testing.T) []pythons.Interpreter {
	t.Helper()
	found, err := pythons.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log("interpreters:", found)
	minors := map[int]bool{}
	for _, i := range found {
		minors[i.Minor] = true
	}
	for _, minor := range []int{10, 11, 13} {
		if !minors[minor] {
			t.Errorf("no python 3.%d to test with", minor)
		}
	}
	return found
}

// TestPythonStacks compares each stack with the traceback that Python itself gave at the call, and the place of Python's
// frames among the native ones with the rule that there is one run of them just inside every call of the evaluator.
func TestPythonStacks(t *testing.T) {
	for _, i := range interpreters(t) {
		t.Run(i.String(), func(t *testing.T) {
			o := ok(t, nil, i.Path, "train.py", "--steps", "3", "--sleep", "0", "--version", "v2")
			wantLedger(t, o, o.calls)
			wantTracebacks(t, o)
			wantWhole(t, o)
			for _, s := range o.profile.Sample {
				if problem := misplaced(frames(s), i.Minor >= 14); problem != "" {
					t.Errorf("%s:%s", problem, text(frames(s)))
				}
			}
		})
	}
}

// wantTracebacks compares what each Python stack allocated, and by which function of the driver.
func wantTracebacks(t *testing.T, o outcome) {
	t.Helper()
	notes, err := fakegpu.ReadTracebacks(o.notes)
	if err != nil || len(notes) < 90 {
		t.Fatalf("%d tracebacks, %v", len(notes), err)
	}
	want, got := map[string]fakegpu.Amount{}, map[string]fakegpu.Amount{}
	add := func(to map[string]fakegpu.Amount, key string, a fakegpu.Amount) {
		to[key] = fakegpu.Amount{Bytes: to[key].Bytes + a.Bytes, Objects: to[key].Objects + a.Objects}
	}
	for _, n := range notes {
		key := n.Function
		for _, f := range n.Frames {
			key += fmt.Sprintf("\n\t%s (%s:%d)", f.Name, f.File, f.Line)
		}
		add(want, key, fakegpu.Amount{Bytes: n.Size, Objects: 1})
	}
	for _, s := range o.profile.Sample {
		stack := frames(s)
		key := stack[0].Function
		key += text(slices.DeleteFunc(stack, func(f frame) bool { return !f.python() }))
		add(got, key, fakegpu.Amount{
			Bytes:   uint64(value(t, o.profile, s, "gpu_alloc_bytes")),
			Objects: uint64(value(t, o.profile, s, "gpu_alloc_objects")),
		})
	}
	wrong := 0
	for key, amount := range want {
		if got[key] != amount {
			wrong++
			t.Errorf("the profile has %+v, the tracebacks %+v of %s", got[key], amount, key)
		}
	}
	for key, amount := range got {
		if _, ok := want[key]; !ok {
			wrong++
			t.Errorf("the profile has %+v, the tracebacks nothing of %s", amount, key)
		}
	}
	t.Logf("%d of %d stacks of %d allocations are wrong", wrong, len(want), len(notes))
}

// evaluator tells whether a native frame runs Python code: the evaluator, of which a compiler may have set apart what is
// seldom run, or from 3.14 on one of the functions into which it may be built for tail calls.
func evaluator(f frame) bool {
	return interpreter(f) && (strings.HasPrefix(f.Function, "_PyEval_EvalFrameDefault") || strings.HasPrefix(f.Function, "_TAIL_CALL_"))
}

// nameless tells whether a frame is of a function of the interpreter whose name is stripped from it: in a build for tail
// calls, as the standalone ones are from 3.14 on, also those of the evaluator.
func nameless(f frame) bool { return interpreter(f) && f.Address != 0 }

func interpreter(f frame) bool {
	return strings.HasPrefix(f.Object, "libpython") || strings.HasPrefix(f.Object, "python")
}

// misplaced says what is wrong with the order of a stack's frames, or nothing. Stripped says that functions of the
// evaluator may be nameless.
func misplaced(stack []frame, stripped bool) string {
	if !strings.HasPrefix(stack[0].Object, "libcuda.so") {
		return "the innermost frame is not the driver's"
	}
	last := stack[len(stack)-1]
	onMain := slices.ContainsFunc(stack, func(f frame) bool { return f.python() && f.Function == "<module>" })
	switch {
	case onMain && (last.Function != "_start" || !interpreter(last)):
		return "the main thread's outermost frame is not the executable's _start"
	case !onMain && (!strings.HasPrefix(last.Object, "libc.so") || !threadStart(stack)):
		return "the thread's outermost frame is not the C library's clone"
	}
	for i, f := range stack {
		if i == 0 {
			continue
		}
		if inner := stack[i-1]; inner.python() && !f.python() && !evaluator(f) && (!stripped || !nameless(f)) {
			return fmt.Sprintf("Python's %s is directly inside %s", inner, f)
		} else if !stripped && evaluator(f) && !inner.python() {
			return fmt.Sprintf("%s has no Python frame directly inside, but %s", f, inner)
		}
	}
	return ""
}

// threadStart tells whether a stack has the interpreter's own start of a thread as the outermost frame outside the C
// library. Debian's C library names only its exported functions.
func threadStart(stack []frame) bool {
	for _, f := range slices.Backward(stack) {
		if !strings.HasPrefix(f.Object, "libc.so") {
			return interpreter(f)
		}
	}
	return false
}

// TestB24EachRunOfPythonFramesIsInsideItsOwnEvaluatorCall has Python call C, which calls Python, which calls C: three
// levels, of which each Python level is more than one frame deep or not by the version of the evaluator.
func TestB24EachRunOfPythonFramesIsInsideItsOwnEvaluatorCall(t *testing.T) {
	for _, i := range interpreters(t) {
		t.Run(i.String(), func(t *testing.T) {
			o := ok(t, nil, i.Path, "train.py", "--steps", "1")
			seen := 0
			for _, s := range o.profile.Sample {
				stack := frames(s)
				if !slices.ContainsFunc(stack, func(f frame) bool { return f.Object == "libcallback.so" }) {
					continue
				}
				seen++
				// Outermost last; between them may be others.
				want := []string{"cuMemAllocAsync", "scratch", "from_c", "evaluator", "call_back", "gather", "step", "evaluator", "_start"}
				for _, f := range stack {
					if len(want) == 0 {
						break
					}
					bare := f.Function
					if f.python() {
						bare = bare[strings.LastIndexByte(bare, '.')+1:]
					} else if evaluator(f) || i.Minor >= 14 && nameless(f) {
						bare = "evaluator"
					}
					if bare == want[0] {
						want = want[1:]
					}
				}
				if len(want) > 0 {
					t.Errorf("from %s on the order is wrong:%s", want[0], text(stack))
				}
			}
			if seen != 1 {
				t.Errorf("%d stacks have the extension, want 1", seen)
			}
		})
	}
}
