package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// Of 10,000 addresses of each of a few real files, every one that a symbol of nm covers has the name of such a symbol, the
// innermost, and no other has a name of a sized one.
func TestNamesEqualNM(t *testing.T) {
	static := build(t, "#include <stdio.h>\nint main(void) { return printf(\"\"); }", "-static")
	for _, test := range []struct {
		path  string
		flags []string
	}{{library(t, "libc.so.6"), []string{"-D"}}, {library(t, "libstdc++.so.6"), []string{"-D"}}, {library(t, "libm.so.6"), []string{"-D"}}, {static, nil}} {
		t.Run(filepath.Base(test.path), func(t *testing.T) {
			o := open(t, t.TempDir(), time.Now)
			id, n, _ := add(t, o, test.path)
			all := nm(t, test.path, test.flags...)
			if n == 0 || len(all) == 0 {
				t.Fatalf("%d symbols, nm has %d", n, len(all))
			}
			low, high := ^uint64(0), uint64(0)
			for _, s := range all {
				low, high = min(low, s.value), max(high, s.value+s.size)
			}
			random := rand.New(rand.NewPCG(1, 1))
			addresses := make([]uint64, 10000)
			for i := range addresses {
				addresses[i] = low + random.Uint64N(high-low)
				if i%4 == 0 { // first and last byte
					s := all[random.IntN(len(all))]
					addresses[i] = s.value + uint64(i/4%2)*(s.size-1)
				}
			}
			covered := 0
			for i, got := range names(t, o, id, addresses...) {
				at := addresses[i]
				innermost := uint64(0)
				found := false
				for _, s := range all {
					if s.value <= at && at < s.value+s.size && (!found || s.value >= innermost) {
						innermost, found = s.value, true
					}
				}
				if !found {
					continue
				}
				covered++
				ok := false
				for _, s := range all {
					ok = ok || s.value == innermost && s.name == got
				}
				if !ok {
					t.Errorf("address %#x is in %q, nm has others at %#x", at, got, innermost)
				}
			}
			if covered < 3000 {
				t.Errorf("only %d addresses in symbols", covered)
			}
		})
	}
}

// addr2line's answers from symbol tables name the same functions.
func TestNamesEqualAddr2line(t *testing.T) {
	path := build(t, "#include <stdio.h>\nint main(void) { return printf(\"\"); }", "-static")
	o := open(t, t.TempDir(), time.Now)
	id, _, _ := add(t, o, path)
	all := nm(t, path)
	at := map[string][]uint64{}
	for _, s := range all {
		at[s.name] = append(at[s.name], s.value)
	}
	var addresses []uint64
	var args []string
	random := rand.New(rand.NewPCG(2, 2))
	for range 2000 {
		s := all[random.IntN(len(all))]
		addresses = append(addresses, s.value+random.Uint64N(max(s.size, 1)))
		args = append(args, fmt.Sprintf("%#x", addresses[len(addresses)-1]))
	}
	lines := strings.Split(run(t, "addr2line", append([]string{"-f", "-e", path}, args...)...), "\n")
	differ := 0
	for i, got := range names(t, o, id, addresses...) {
		want := lines[2*i]
		same := got == want
		for _, a := range at[got] {
			for _, b := range at[want] {
				same = same || a == b
			}
		}
		if !same {
			differ++
			t.Logf("address %s: %s, addr2line says %s", args[i], got, want)
		}
	}
	if differ > len(addresses)/200 {
		t.Errorf("%d of %d differ", differ, len(addresses))
	}
}

// B18: a zero-sized symbol ends with its section, and a sized one does not reach into the hole after it.
func TestB18Assembly(t *testing.T) {
	path := build(t, `# assembly
.text
.globl sized
.type sized, @function
sized: nop; nop; nop; nop
.size sized, 4
hole: .skip 0
.type hole, @object
.skip 60, 0x90
.globl label
label: .skip 16, 0x90
.globl next
.type next, @function
next: .skip 8, 0x90
.section .text.last, "ax", @progbits
.globl last
last: .skip 8, 0x90
`, "-nostdlib", "-Wl,-e,next", "-Wl,--build-id", "-Wl,--section-start=.text.last=0x900000", "-no-pie")
	o := open(t, t.TempDir(), time.Now)
	id, _, _ := add(t, o, path)
	at := map[string]uint64{}
	for _, line := range strings.Split(run(t, "nm", path), "\n") {
		var value uint64
		var kind, name string
		if n, _ := fmt.Sscanf(line, "%x %s %s", &value, &kind, &name); n == 3 {
			at[name] = value
		}
	}
	for _, test := range []struct {
		address uint64
		want    string
	}{
		{at["sized"], "sized"}, {at["sized"] + 3, "sized"}, {at["sized"] + 4, ""}, {at["label"] - 1, ""}, {at["label"], "label"}, {at["label"] + 15, "label"},
		{at["next"], "next"}, {at["last"], "last"}, {at["last"] + 7, "last"}, {at["last"] + 8, ""}, {0, ""}, {^uint64(0), ""},
	} {
		if got := names(t, o, id, test.address)[0]; got != test.want {
			t.Errorf("address %#x is in %q, want %q", test.address, got, test.want)
		}
	}
}

func TestAliases(t *testing.T) {
	path := build(t, `
int public_name(int x) { return x * 7; }
int longer_public_name(int x) __attribute__((alias("public_name")));
int __hidden_name(int x) __attribute__((alias("public_name")));
int weak(int x) __attribute__((weak, alias("public_name")));
static int own(int x) __attribute__((alias("public_name"), used));
int main(void) { return public_name(0); }`)
	o := open(t, t.TempDir(), time.Now)
	id, _, _ := add(t, o, path)
	for _, s := range nm(t, path) {
		if s.name == "own" {
			if got := names(t, o, id, s.value)[0]; got != "public_name" {
				t.Errorf("the name is %s", got)
			}
		}
	}
}

func TestBetterSymbolsReplacePoorer(t *testing.T) {
	full := build(t, "static int inner(int x) { return x; } int f(int x) { return inner(x); } int main(void) { return f(0); }", "-rdynamic", "-O0")
	stripped := filepath.Join(t.TempDir(), "stripped")
	run(t, "strip", "-o", stripped, full)
	dir := t.TempDir()
	o := open(t, dir, time.Now)
	var inner uint64
	for _, s := range nm(t, full) {
		if s.name == "inner" {
			inner = s.value
		}
	}
	id, _ := reduced(t, full)
	if !o.Wants(id) {
		t.Fatal("an unknown build is not wanted")
	}
	if _, n, stored := add(t, o, stripped); n == 0 || !stored {
		t.Fatalf("%d symbols, stored: %v", n, stored)
	}
	if o.Wants(id) || o.Complete(id) {
		t.Fatal("known by its exports, the build is wanted, or complete")
	}
	if got := names(t, o, id, inner)[0]; got != "" {
		t.Fatalf("%q is not exported", got)
	}
	if _, _, stored := add(t, o, full); !stored {
		t.Fatal("the whole table was not taken")
	}
	if got := names(t, o, id, inner)[0]; got != "inner" {
		t.Fatalf("the name is %q", got)
	}
	if _, _, stored := add(t, o, stripped); stored || !o.Complete(id) {
		t.Fatal("the poorer table replaced the better one")
	}
	if got := names(t, open(t, dir, time.Now), id, inner)[0]; got != "inner" {
		t.Fatalf("after a restart the name is %q", got)
	}
}

func TestClaims(t *testing.T) {
	o := open(t, t.TempDir(), time.Now)
	id, file := reduced(t, build(t, "int main(void) { return 0; }"))
	bare, bareFile := reduced(t, build(t, "int main(void) { return 1; }", "-Wl,--build-id=none"))
	for _, test := range []struct {
		name, build string
		file        []byte
	}{
		{"another build ID", "gnu:0011", file},
		{"a digest instead of the build ID", bare, file},
		{"another digest", "sha256:" + strings.Repeat("00", 32), bareFile},
		{"a digest, and a byte was changed", bare, append(append([]byte(nil), bareFile[:len(bareFile)-1]...), 1)},
		{"no ELF file", id, []byte("hello")},
		{"cut", id, file[:70]},
		{"empty", id, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := o.Add(test.build, bytes.NewReader(test.file), int64(len(test.file))); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%v", err)
			}
			if !o.Wants(test.build) {
				t.Error("a false claim made the build unwanted")
			}
		})
	}
	if _, stored, err := o.Add(bare, bytes.NewReader(bareFile), int64(len(bareFile))); !stored || err != nil {
		t.Errorf("a true digest: %v, %v", stored, err)
	}
}

func TestUnreadableTablesAreRefusedForAnHour(t *testing.T) {
	path := build(t, "int main(void) { return 0; }")
	id, file := reduced(t, path)
	bad := append([]byte(nil), file...)
	broken := 0
	for at := int64(le64(bad[40:])); at+64 <= int64(len(bad)); at += 64 { // take the string tables of the symbol tables away
		if kind := bad[at+4]; kind == 2 || kind == 11 {
			copy(bad[at+40:], []byte{0, 0, 0, 0})
			broken++
		}
	}
	if broken == 0 {
		t.Fatal("no table found to break")
	}
	now := time.Now()
	o := open(t, t.TempDir(), func() time.Time { return now })
	if _, _, err := o.Add(id, bytes.NewReader(bad), int64(len(bad))); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if o.Wants(id) {
		t.Error("asked for again at once")
	}
	if err := o.Symbolize(id, []uint64{1}, nil); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the reason is not told: %v", err)
	}
	now = now.Add(61 * time.Minute)
	if !o.Wants(id) {
		t.Error("not asked for again after an hour")
	}
	if _, stored, err := o.Add(id, bytes.NewReader(file), int64(len(file))); !stored || err != nil {
		t.Errorf("a good file: %v, %v", stored, err)
	}
}

// An index that the disk damaged is missing, not wrong: any byte of its head, its table in memory, or its length.
func TestDamagedIndexIsMissing(t *testing.T) {
	dir := t.TempDir()
	id, n, _ := add(t, open(t, dir, time.Now), build(t, "int main(void) { return 0; }"))
	files, err := filepath.Glob(filepath.Join(dir, "objects", "*", "*", "symbols"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string][]byte{"cut": whole[:len(whole)-1], "empty": nil, "longer": append(append([]byte(nil), whole...), 0)}
	for at := range 64 {
		b := append([]byte(nil), whole...)
		b[at] ^= 1
		damage[fmt.Sprint("byte ", at)] = b
	}
	sparse := append([]byte(nil), whole...)
	sparse[len(sparse)-1] ^= 1
	damage["sparse table"] = sparse
	for name, b := range damage {
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		o := open(t, dir, time.Now)
		if err := o.Symbolize(id, []uint64{0}, func(int, []*symbolizerv1.Line) {}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if !o.Wants(id) {
			t.Errorf("%s: not asked for again", name)
		}
	}
	if n == 0 {
		t.Error("no symbols")
	}
}

// Many users of many builds, more than are open at once, while builds are replaced.
func TestConcurrentUse(t *testing.T) {
	o := open(t, t.TempDir(), time.Now)
	path := build(t, "int f(void) { return 0; } int main(void) { return f(); }", "-Wl,--build-id=0x11223344")
	_, file := reduced(t, path)
	at := bytes.Index(file, []byte{0x11, 0x22, 0x33, 0x44})
	var f uint64
	for _, s := range nm(t, path) {
		if s.name == "f" {
			f = s.value
		}
	}
	const builds = 600
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			own := append([]byte(nil), file...)
			for n := range builds {
				n = (n + worker*builds/8) % builds
				own[at], own[at+1] = byte(n>>8), byte(n)
				id := fmt.Sprintf("gnu:%02x%02x3344", n>>8, n&0xff)
				if _, _, err := o.Add(id, bytes.NewReader(own), int64(len(own))); err != nil {
					t.Error(err)
					return
				}
				err := o.Symbolize(id, []uint64{f}, func(_ int, lines []*symbolizerv1.Line) {
					if len(lines) != 1 || lines[0].Function != "f" {
						t.Errorf("%s: %v", id, lines)
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if hits, misses := o.Cache(); hits+misses != 8*builds {
		t.Errorf("%d hits and %d misses", hits, misses)
	}
}
