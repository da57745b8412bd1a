package elfobj_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/elfobj"
)

func TestReducedFileSaysTheSame(t *testing.T) {
	for _, path := range systemLibraries(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			reduced := reduce(t, path)
			if !bytes.Equal(reduced, reduce(t, path)) {
				t.Fatal("two copies differ")
			}
			small := filepath.Join(t.TempDir(), "reduced")
			if err := os.WriteFile(small, reduced, 0o600); err != nil {
				t.Fatal(err)
			}
			if again := reduce(t, small); !bytes.Equal(again, reduced) {
				t.Error("the reduced file's own copy differs from it")
			}
			for _, flag := range []string{"-sW", "-nW"} {
				// readelf looks versions up in sections that are not kept; names are compared without.
				want, got := withoutVersions(run(t, "readelf", flag, path)), withoutVersions(run(t, "readelf", flag, small))
				if got != want {
					t.Errorf("readelf %s differs in %s", flag, difference(got, want))
				}
			}
			run(t, "readelf", "-lW", small)
			a, b := open(t, path), open(t, small)
			if !bytes.Equal(a.BuildID(), b.BuildID()) || a.Machine() != b.Machine() || a.Type() != b.Type() {
				t.Error("the reduced file has another identity")
			}
			for i, s := range a.Segments() {
				if s != b.Segments()[i] {
					t.Errorf("segment %+v is %+v", s, b.Segments()[i])
				}
			}
		})
	}
}

func difference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "line " + a[i] + ", want " + b[i]
		}
	}
	if len(a) != len(b) {
		return "the number of lines"
	}
	return ""
}

func withoutVersions(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "@")
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

func TestReducedFileHasNoCode(t *testing.T) {
	path := build(t, program, "-g")
	f := open(t, path)
	code, _, ok, err := f.Section(".text")
	if err != nil || !ok {
		t.Fatal(err)
	}
	data, _, ok, err := f.Section(".rodata")
	if err != nil || !ok {
		t.Fatal(err)
	}
	reduced := reduce(t, path)
	if bytes.Contains(reduced, code[:64]) || bytes.Contains(reduced, data) {
		t.Fatal("the reduced file has code or data of the program")
	}
}

func TestReduceRefuses(t *testing.T) {
	for name, b := range map[string]string{"nothing": "", "text": strings.Repeat("hello ", 100), "32-bit": "\x7fELF\x01\x01\x01" + strings.Repeat("\x00", 100)} {
		t.Run(name, func(t *testing.T) {
			if err := elfobj.Reduce(&bytes.Buffer{}, strings.NewReader(b), int64(len(b))); err == nil {
				t.Fatal("no error")
			}
		})
	}
}
