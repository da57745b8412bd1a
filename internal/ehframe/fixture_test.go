package ehframe_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/ehframe"
	"github.com/vramprof/vramprof/internal/elfobj"
)

const noTable = "-Wl,--no-eh-frame-hdr"

// builds are ways to compile and link testdata/odd.c that lead to frames, stubs, sections and addresses of other kinds.
var builds = []struct {
	name     string
	compiler string
	flags    []string
}{
	{"O2", "gcc", []string{"-O2", "-Wl,-z,lazy"}},
	{"O0", "gcc", []string{"-O0"}},
	{"frame pointers", "gcc", []string{"-O2", "-fno-omit-frame-pointer"}},
	{"arguments pushed", "gcc", []string{"-Os", "-mpush-args", "-maccumulate-outgoing-args", "-fcf-protection", "-Wl,-z,lazy", "-Wl,-z,ibtplt"}},
	{"shrink-wrapped and split", "gcc", []string{"-O3", "-freorder-blocks-and-partition", "-ffunction-sections"}},
	{"no table of functions", "gcc", []string{"-O2", noTable, "-Wl,-z,lazy"}},
	{"fixed addresses", "gcc", []string{"-O2", "-no-pie", "-fno-pie", "-Wl,-z,lazy"}},
	{"B11 high addresses", "gcc", []string{"-O2", "-pie", "-fPIE", "-Wl,-Ttext-segment=0x34fd200000"}},
	{"static", "gcc", []string{"-O2", "-static"}},
	{"clang", "clang", []string{"-O2"}},
	{"clang, frame pointers", "clang", []string{"-O1", "-fno-omit-frame-pointer"}},
}

// build compiles testdata/odd.c. A toolchain that cannot fails the test.
func build(t testing.TB, compiler string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) {
		if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", compiler, args, err, out)
		}
	}
	silent, odd := filepath.Join(dir, "silent.o"), filepath.Join(dir, "odd")
	flags = slices.Concat([]string{"-fasynchronous-unwind-tables", "-pthread", "-w"}, flags)
	run(slices.Concat(flags, []string{"-c", "-o", silent, "testdata/silent.c", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"})...)
	run(slices.Concat(flags, []string{"-o", odd, "testdata/odd.c", "testdata/leaf.c", silent})...)
	return odd
}

// parse gives the rows of a file.
func parse(t testing.TB, path string) (*ehframe.Table, *elfobj.File) {
	t.Helper()
	object := open(t, path)
	eh, at, hdr, hdrAt, err := object.EHFrame()
	if err != nil {
		t.Fatal(err)
	}
	table, err := ehframe.Parse(eh, at, hdr, hdrAt)
	if err != nil {
		t.Fatal(err)
	}
	return table, object
}

func open(t testing.TB, path string) *elfobj.File {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	object, err := elfobj.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return object
}
