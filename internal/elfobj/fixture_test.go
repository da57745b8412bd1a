package elfobj_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/internal/elfobj"
)

// program prints where a function of it is, and how it is mapped.
const program = `
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
__attribute__((section(".text.extra"), noinline)) int marker(int x) { return x * 3; }
int main(void) {
	char line[512];
	printf("%lx\n", (unsigned long)&marker);
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f)) if (strstr(line, " r-xp ") && strstr(line, "vramprof-fixture")) fputs(line, stdout);
	return marker(0);
}`

// build compiles C source with flags; a toolchain that cannot fails the test.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.c"), filepath.Join(dir, "vramprof-fixture")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command("gcc", append([]string{"-o", out, in}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", flags, err, b)
	}
	return out
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Fatalf("%s %v complains: %s", name, args, stderr.String())
	}
	return string(out)
}

func open(t testing.TB, path string) *elfobj.File {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	info, err := r.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfobj.Open(r, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func reduce(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := elfobj.Reduce(&out, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// systemLibraries are real files: with and without .symtab, of C and of C++.
func systemLibraries(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, name := range []string{"libc.so.6", "libstdc++.so.6", "libm.so.6"} {
		b, err := exec.Command("gcc", "-print-file-name="+name).Output()
		path := string(bytes.TrimSpace(b))
		if err != nil || !filepath.IsAbs(path) {
			t.Fatalf("find %s: %q %v", name, path, err)
		}
		out = append(out, path)
	}
	return append(out, build(t, program, "-g"), build(t, program, "-static"))
}
