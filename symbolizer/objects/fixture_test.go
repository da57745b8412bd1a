package objects_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/symbolizer/objects"
	"github.com/vramprof/vramprof/symbolizer/store"
)

func open(t testing.TB, dir string, now func() time.Time) *objects.Objects {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := objects.New(s, now)
	t.Cleanup(o.Close)
	return o
}

// build compiles C source, and gives the path of the file.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.c"), filepath.Join(dir, "program")
	if strings.Contains(source, "# assembly") {
		in = filepath.Join(dir, "in.s")
	}
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", append([]string{"-o", out, in}, flags...)...)
	return out
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// reduced gives the reduced copy of a file, and its build ID.
func reduced(t testing.TB, path string) (id string, file []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfobj.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if id, err = f.Identity(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := elfobj.Reduce(&out, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
	return id, out.Bytes()
}

func add(t testing.TB, o *objects.Objects, path string) (id string, symbols uint64, stored bool) {
	t.Helper()
	id, file := reduced(t, path)
	symbols, stored, err := o.Add(id, bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return id, symbols, stored
}

// names gives the raw name at each address, empty where there is none.
func names(t testing.TB, o *objects.Objects, id string, addresses ...uint64) []string {
	t.Helper()
	out := make([]string, len(addresses))
	err := o.Symbolize(id, addresses, func(i int, lines []*symbolizerv1.Line) {
		if len(lines) > 0 {
			out[i] = lines[0].Function
			if lines[0].SystemName != "" {
				out[i] = lines[0].SystemName
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// symbol is a line of nm.
type symbol struct {
	value, size uint64
	kind        string
	name        string
}

func nm(t testing.TB, path string, flags ...string) (out []symbol) {
	t.Helper()
	for _, line := range strings.Split(run(t, "nm", append(flags, "-S", "--defined-only", path)...), "\n") {
		var s symbol
		if n, _ := fmt.Sscanf(line, "%x %x %s %s", &s.value, &s.size, &s.kind, &s.name); n == 4 && strings.Contains("tTWwi", s.kind) {
			s.name, _, _ = strings.Cut(s.name, "@")
			out = append(out, s)
		}
	}
	return out
}

func library(t testing.TB, name string) string {
	t.Helper()
	path := strings.TrimSpace(run(t, "gcc", "-print-file-name="+name))
	if !filepath.IsAbs(path) {
		t.Fatalf("the compiler does not know %s", name)
	}
	return path
}

func le64(b []byte) (v uint64) {
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}
