package symbols_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/agent/symbols"
)

// build makes a library of some functions.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libplaces.so")
	if err := os.WriteFile(source, []byte(`
int grow(int n) { return n * 3; }
static int __attribute__((noinline)) hidden(int n) { return grow(n) + 1; }
int shrink(int n) { return hidden(n) / 2; }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-O1", "-fPIC", "-shared", "-Wl,--build-id", "-o", library, source)
	return library
}

type symbol struct {
	name    string
	address uint64
}

// nm lists the library's own functions as binutils sees them.
func nm(t *testing.T, library string) (out []symbol) {
	t.Helper()
	for line := range strings.Lines(run(t, "nm", library)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[2] == "grow" || f[2] == "hidden" || f[2] == "shrink") {
			address, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, symbol{f[2], address})
		}
	}
	if len(out) != 3 {
		t.Fatalf("nm: %v", out)
	}
	return out
}

const placesOf = `
import json, sys
source = '''
class Cache:
    def grow(self, n):
        a = n + 1
        return [x
                for x in range(a)]

def main():
    c = Cache()

    return c.grow(3)
'''
out = []
def visit(code, qualname):
    lines = {}
    for start, end, line in code.co_lines():
        for i in range(start, end, 2):
            lines[i] = line
    for i, line in lines.items():
        if line:
            out.append(dict(filename=code.co_filename, name=code.co_name, qualname=getattr(code, "co_qualname", code.co_name), first=code.co_firstlineno,
                table=list(code.co_linetable), instruction=i, line=line))
    for c in code.co_consts:
        if hasattr(c, "co_code"):
            visit(c, c.co_name)
visit(compile(source, "/srv/cache.py", "exec"), "<module>")
json.dump(dict(minor=sys.version_info[1], places=out), sys.stdout)
`

// pythonPlaces are places in code objects, and their lines as the interpreter itself has them.
func pythonPlaces(t *testing.T) (places []symbols.Python, lines []int32) {
	t.Helper()
	var out struct {
		Minor  int
		Places []struct {
			Filename, Name, Qualname string
			First, Line              int32
			Table                    []int
			Instruction              uint32
		}
	}
	if err := json.Unmarshal([]byte(run(t, "python3", "-c", placesOf)), &out); err != nil {
		t.Fatal(err)
	}
	codes := map[string]*symbols.Code{}
	for _, p := range out.Places {
		if codes[p.Qualname] == nil {
			c := &symbols.Code{MinorVersion: out.Minor, Filename: p.Filename, QualName: p.Qualname, Name: p.Name, FirstLine: p.First}
			for _, b := range p.Table {
				c.LineTable = append(c.LineTable, byte(b))
			}
			codes[p.Qualname] = c
		}
		places, lines = append(places, symbols.Python{Code: codes[p.Qualname], Instruction: p.Instruction}), append(lines, p.Line)
	}
	if len(codes) < 3 {
		t.Fatalf("%d code objects", len(codes))
	}
	return places, lines
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}
