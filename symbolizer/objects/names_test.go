package objects

import (
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// B17: names as people know them, whatever the compiler made of them.
func TestB17Names(t *testing.T) {
	for _, test := range []struct{ name, raw, want string }{
		{"C", "cuMemAlloc_v2", "cuMemAlloc_v2"},
		{"C++ method", "_ZN3c1013TensorStorage8allocateEm", "c10::TensorStorage::allocate"},
		{"template arguments stay", "_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
		{"operator", "_ZN3FooplERKS_", "Foo::operator+"},
		{"anonymous namespace", "_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run"},
		{"lambda", "_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"},
		{"Rust, legacy: without the hash", "_ZN3foo3bar17h05af221e174051e9E", "foo::bar"},
		{"Rust v0", "_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"},
		{"cold part", "train.cold", "train"},
		{"part, numbered", "train.part.0", "train"},
		{"several suffixes", "train.constprop.0.isra.1.cold", "train"},
		{"cold part of C++", "_ZN3foo3barEv.cold", "foo::bar"},
		{"LLVM's", "train.llvm.1234567890123", "train"},
		{"no suffix, but a dot", "runtime.mallocgc", "runtime.mallocgc"},
		{"a word that begins like a suffix", "a.colder", "a.colder"},
		{"version", "memcpy@@GLIBC_2.14", "memcpy"},
		{"malformed C++", "_ZN3foo", "_ZN3foo"},
		{"malformed Rust", "_RNvC", "_RNvC"},
		{"not UTF-8", "f\xff\xfeg", "f\uFFFDg"},
		{"only a suffix", ".cold", ".cold"},
		{"only a version", "@x", "@x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := function(test.raw); got != test.want {
				t.Errorf("function(%q) = %q, want %q", test.raw, got, test.want)
			}
		})
	}
}

// B17: no symbol costs seconds or gigabytes, and none loses its name.
func TestB17HostileNames(t *testing.T) {
	deep := "_Z1fI" + strings.Repeat("1aI", 2000) + "i" + strings.Repeat("E", 2001) + "vv"
	for name, raw := range map[string]string{
		"deep templates":        deep,
		"back references":       "_Z1fI" + strings.Repeat("St4pairI", 40) + "ii" + strings.Repeat("ES0_E", 40) + "Evv",
		"doubling":              "_Z1fSt4pairIiiE" + strings.Repeat("St4pairIS_S0_E", 400),
		"doubling of later":     doubling(60),
		"Rust back references":  "_RNvC1a" + strings.Repeat("INvB2_", 2000),
		"one long name":         strings.Repeat("x", 60000),
		"a megabyte of nothing": "_Z" + strings.Repeat("P", 60000) + "i",
		"pointers":              "_Z1f" + strings.Repeat("PK", 8000) + "i",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got := function(raw)
			if d := time.Since(start); d > time.Second {
				t.Errorf("took %v", d)
			}
			if got == "" || len(got) > maxShown+8 || !utf8.ValidString(got) {
				t.Errorf("%d bytes: %.60q", len(got), got)
			}
		})
	}
}

// doubling is a C++ name of n types, each a pair of the one before.
func doubling(n int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	s := "_Z1fSt4pairIiiE"
	for i := range n {
		last := "S" + digits[i%36:i%36+1] + "_"
		s += "St4pairI" + last + last + "E"
	}
	return s
}

// C++ names of a real library equal those of binutils.
func TestNamesEqualCxxfilt(t *testing.T) {
	library, err := exec.Command("gcc", "-print-file-name=libstdc++.so.6").Output()
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("nm", "-D", "--defined-only", "--format=just-symbols", strings.TrimSpace(string(library))).Output()
	if err != nil {
		t.Fatal(err)
	}
	var raw []string
	for _, name := range strings.Fields(string(list)) {
		name, _, _ = strings.Cut(name, "@")
		raw = append(raw, name)
	}
	filter := exec.Command("c++filt", "-p", "-i")
	filter.Stdin = strings.NewReader(strings.Join(raw, "\n") + "\n")
	out, err := filter.Output()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i, want := range strings.Split(strings.TrimRight(string(out), "\n"), "\n") {
		if len(want) > maxFunction {
			continue
		}
		compared++
		if got := function(raw[i]); got != want {
			t.Errorf("%s is %q, c++filt says %q", raw[i], got, want)
		}
	}
	if compared < 4000 {
		t.Errorf("only %d names compared", compared)
	}
}

func FuzzFunction(f *testing.F) {
	f.Add("_ZNSt6vectorIiSaIiEE9push_backERKi.part.0")
	f.Add("_RNvCskwGfYPst2Cb_3foo16example_function")
	f.Add(doubling(20))
	f.Fuzz(func(t *testing.T, raw string) {
		if got := function(raw); got == "" && raw != "" || !utf8.ValidString(got) {
			t.Fatalf("function(%q) = %q", raw, got)
		}
	})
}
