package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

// TestNativeChain compares stacks through code without frame pointers with what the workload knows of itself and with
// what the C library's own unwinder found in the same call.
func TestNativeChain(t *testing.T) {
	o := ok(t, nil, "./chain", "--iterations", "5", "--mix")
	wantLedger(t, o, o.calls)
	wantWhole(t, o)
	own, err := fakegpu.ReadNativeStacks(o.notes)
	if err != nil || len(own) != 5 {
		t.Fatalf("%d native stacks, %v", len(own), err)
	}
	for _, n := range own[1:] {
		if !slices.Equal(n.Frames[1:], own[0].Frames[1:]) {
			t.Fatalf("the workload allocates from more than one place: %+v and %+v", n, own[0])
		}
	}
	// What a reader sees is without the parameters.
	short := map[string]string{
		"_ZN5chain4PoolIdE4takeEP7requestm":              "chain::Pool<double>::take",
		"_ZZN5chain5Arena7reserveEP7requestENKUlmE_clEm": "chain::Arena::reserve()::{lambda(unsigned long)#1}::operator()",
		"_ZN5chain5Arena7reserveEP7request":              "chain::Arena::reserve",
	}
	want := append(fakegpu.ChainFunctions(), "_start")
	for _, s := range o.profile.Sample {
		stack := frames(s)
		if driver := stack[0]; !strings.HasPrefix(driver.Object, "libcuda.so") || !strings.HasPrefix(driver.Function, "cuMem") && !strings.HasPrefix(driver.Function, "cuArray") {
			t.Errorf("the innermost frame is not the driver's:%s", text(stack))
		}
		var functions []string
		for _, f := range stack[1:] {
			if strings.HasPrefix(f.Object, "libc.so") {
				continue
			}
			functions = append(functions, demangle.Filter(f.System))
			shown, mangled := short[f.System]
			if !mangled {
				shown = f.System
			}
			if f.Function != shown {
				t.Errorf("%s is shown as %s, want %s", f.System, f.Function, shown)
			}
		}
		if !slices.Equal(functions, want) {
			t.Errorf("functions %q, want %q", functions, want)
		}
		if len(stack)-1 != len(own[0].Frames) {
			t.Errorf("%d frames, the C library's unwinder finds %d: %+v:%s", len(stack)-1, len(own[0].Frames), own[0].Frames, text(stack))
			continue
		}
		for i, f := range stack[1:] {
			n := own[0].Frames[i]
			// The profile names a call by the last byte of its instruction, the unwinder by where it returns to.
			if f.Object != filepath.Base(n.Object) || f.Address != 0 && f.Address != n.Offset-1 || f.Address == 0 && n.Name != "" && f.System != n.Name {
				t.Errorf("frame %d is %+v, the C library's unwinder finds %+v", i, f, n)
			}
		}
	}
}
