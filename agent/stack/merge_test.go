package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded is a stack of testdata: one frame a line, innermost first, with its CFA or anchor and its name, in the order
// that it has merged. They were recorded with gdb 13: the CFAs by its unwinder, and each run of Python frames put by the
// names that gdb shows, inside the next _PyEval_EvalFrameDefault (3.14, which has no such name: inside the function that
// PyObject_Vectorcall and PyEval_EvalCode call).
type recorded struct {
	native     []Native
	python     []Python
	nativeName []string
	pythonName []string
	merged     []string // without shim frames
}

func record(t *testing.T, path string) recorded {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	for line := range strings.Lines(string(text)) {
		var kind string
		var address uint64
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%s %v", &kind, &address); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		line = strings.TrimSpace(line)
		switch kind {
		case "native":
			r.native, r.nativeName = append(r.native, Native{address}), append(r.nativeName, line)
		default:
			r.python, r.pythonName = append(r.python, Python{address, kind == "shim"}), append(r.pythonName, line)
		}
		if kind != "shim" {
			r.merged = append(r.merged, line)
		}
	}
	return r
}

// lines shows what Merge gave; Unplaced frames have a question mark.
func (r recorded) lines(frames []Frame) (out []string) {
	for _, f := range frames {
		switch {
		case f.Python < 0:
			out = append(out, r.nativeName[f.Native])
		case f.Unplaced:
			out = append(out, "? "+r.pythonName[f.Python])
		default:
			out = append(out, r.pythonName[f.Python])
		}
	}
	return out
}

func recordings(t *testing.T) map[string]recorded {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.stack")
	if err != nil || len(paths) != 5 {
		t.Fatal(paths, err)
	}
	all := map[string]recorded{}
	for _, p := range paths {
		all[strings.TrimSuffix(filepath.Base(p), ".stack")] = record(t, p)
	}
	return all
}

// B24, B25: C, Python, C, Python, C on each version's kind of marker.
func TestMergePutsPythonFramesIntoTheirEvaluators(t *testing.T) {
	for version, r := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			if got := r.lines(Merge(r.native, r.python)); !slices.Equal(got, r.merged) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(r.merged, "\n"))
			}
		})
	}
}

// However early the native walk ended, the frames that it reached keep their Python frames; the rest is there, in order,
// marked, and outermost.
func TestMergeOfATruncatedNativeWalk(t *testing.T) {
	for version, r := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			for n := range r.native {
				var want, rest []string
				left := n
				for _, line := range r.merged {
					switch {
					case !strings.HasPrefix(line, "native"):
						rest = append(rest, line)
					case left > 0:
						want = append(append(want, rest...), line)
						rest, left = nil, left-1
					}
				}
				for _, line := range rest {
					want = append(want, "? "+line)
				}
				if got := r.lines(Merge(r.native[:n], r.python)); !slices.Equal(got, want) {
					t.Fatalf("after %d native frames: got\n%s\nwant\n%s", n, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// However early the Python walk ended, what has its evaluator is in place, and the frames of the evaluator that was not
// reached are marked: they are not credited to another.
func TestMergeOfATruncatedPythonWalk(t *testing.T) {
	for version, r := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			whole := Merge(r.native, r.python)
			for n := range r.python {
				reached := n
				for reached > 0 && r.python[reached-1].Anchor == 0 {
					reached--
				}
				var want []Frame
				for _, f := range whole {
					if f.Python < reached {
						want = append(want, f)
					}
				}
				for i := reached; i < n; i++ {
					want = append(want, Frame{Native: -1, Python: i, Unplaced: true})
				}
				if got := Merge(r.native, r.python[:n]); !slices.Equal(got, want) {
					t.Fatalf("after %d Python frames: got %v, want %v", n, got, want)
				}
			}
		})
	}
}

func TestMerge(t *testing.T) {
	native := func(i int) Frame { return Frame{Native: i, Python: -1} }
	python := func(i int) Frame { return Frame{Native: -1, Python: i} }
	unplaced := func(i int) Frame { return Frame{Native: -1, Python: i, Unplaced: true} }
	for _, test := range []struct {
		name   string
		native []Native
		python []Python
		want   []Frame
	}{
		{name: "nothing", want: []Frame{}},
		{name: "B30: no Python", native: []Native{{10}, {20}}, want: []Frame{native(0), native(1)}},
		{name: "no native frames", python: []Python{{0, false}, {15, true}, {25, false}}, want: []Frame{unplaced(0), unplaced(2)}},
		{name: "C in an evaluator that has not begun", native: []Native{{10}, {20}, {30}}, python: []Python{{15, true}, {0, false}, {25, true}},
			want: []Frame{native(0), native(1), python(1), native(2)}},
		{name: "the lowest and the next address of a span", native: []Native{{10}, {20}, {30}}, python: []Python{{10, false}, {20, false}},
			want: []Frame{native(0), python(0), native(1), python(1), native(2)}},
		{name: "two evaluators in one native frame", native: []Native{{10}, {20}}, python: []Python{{11, false}, {12, false}},
			want: []Frame{native(0), python(0), python(1), native(1)}},
		{name: "a marker that is nowhere on the stack", native: []Native{{10}, {20}, {30}}, python: []Python{{0, false}, {1 << 40, false}, {0, false}, {25, false}},
			want: []Frame{native(0), native(1), unplaced(0), unplaced(1), python(2), python(3), native(2)}},
		{name: "a signal handler on a stack of its own, above", native: []Native{{1010}, {1020}, {20}, {30}, {40}}, python: []Python{{0, false}, {25, true}},
			want: []Frame{native(0), native(1), native(2), python(0), native(3), native(4)}},
		{name: "Python in a signal handler on a stack of its own, above", native: []Native{{1010}, {1020}, {20}, {30}}, python: []Python{{1015, false}, {25, false}},
			want: []Frame{native(0), python(0), native(1), native(2), python(1), native(3)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Merge(test.native, test.python); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Addresses come from other processes: whatever they are, each frame of the program is there once and in its walk's order.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{10, 20, 30}, []byte{0, 15, 25})
	f.Fuzz(func(t *testing.T, cfas, anchors []byte) {
		var native []Native
		for _, c := range cfas {
			native = append(native, Native{uint64(c)})
		}
		var python []Python
		var want []int
		for i, a := range anchors {
			python = append(python, Python{uint64(a / 2), a&1 == 1})
			if a&1 == 0 {
				want = append(want, i)
			}
		}
		var natives, pythons []int
		for _, f := range Merge(native, python) {
			if f.Python >= 0 {
				pythons = append(pythons, f.Python)
			} else {
				natives = append(natives, f.Native)
			}
		}
		if len(natives) != len(native) || !slices.IsSorted(natives) || !slices.Equal(pythons, want) {
			t.Errorf("native %v of %d, python %v, want %v", natives, len(native), pythons, want)
		}
	})
}
