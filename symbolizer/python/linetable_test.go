package python

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"testing"
)

// oracle prints the code objects of a program and of modules, and what the interpreter's own PyCode_Addr2Line, which
// tracebacks use, says of every instruction of them.
const oracle = `
import ctypes, importlib, json, sys, types
addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes, addr2line.restype = [ctypes.py_object, ctypes.c_int], ctypes.c_int

def codes(c):
    yield c
    for k in c.co_consts:
        if isinstance(k, types.CodeType):
            yield from codes(k)

def show(c):
    print(json.dumps({
        "minor": sys.version_info[1], "name": c.co_name, "first": c.co_firstlineno,
        "table": (c.co_linetable if sys.version_info >= (3, 10) else c.co_lnotab).hex(),
        "lines": [addr2line(c, at) for at in range(0, len(c.co_code), 2)]}))

tricky = (
    "@deco(\n  1,\n)\ndef f(x):\n  return g(" + "\n" * 200 + "x,\n1,\n)\n"              # B29: arguments far below the call
    + "def far():\n  a()\n" + "\n" * 300 + "  b()\n" + "\n" * 70000 + "  c()\n"        # deltas of more than 127, 255, 65535
    + "def back():\n  for i in (\n    1,\n    2,\n  ):\n    with x as y, z as w:\n      try:\n        q(i)\n      except E:\n        r()\n      finally:\n        s()\n"
    + "def long():\n  " + "; ".join("v%d = u" % i for i in range(400)) + "\n"            # one line, over 255 bytes of code
    + "async def co():\n  async for i in j:\n    yield [k async for k in i if k]\n"
    + "class K:\n  x: int = 1\n  def m(self): return super().m()\n"
    + "lam = [lambda: (yield) for _ in ()]\n")
for c in codes(compile(tricky, "tricky.py", "exec")):
    show(c)
for name in ["argparse", "asyncio.base_events", "collections", "inspect", "json.decoder", "threading", "tarfile", "traceback", "typing"]:
    with open(importlib.import_module(name).__file__, encoding="utf-8") as f:
        for c in codes(compile(f.read(), name, "exec")):
            show(c)
`

// B29: the line of every instruction equals the interpreter's own word, in each version's format.
func TestB29LinesEqualInterpreter(t *testing.T) {
	for version, interpreter := range interpreters(t) {
		t.Run(version, func(t *testing.T) {
			cmd := exec.Command(interpreter, "-c", oracle)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			instructions, none := 0, 0
			scanner := bufio.NewScanner(out)
			scanner.Buffer(nil, 64<<20)
			for scanner.Scan() {
				var c struct {
					Minor       int
					Name, Table string
					First       int32
					Lines       []int32
				}
				if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
					t.Fatal(err)
				}
				table, err := hex.DecodeString(c.Table)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range c.Lines {
					got, ok := line(c.Minor, c.First, table, uint32(2*i))
					if !ok {
						got = -1
						none++
					}
					if got != want {
						t.Fatalf("%s, line table %s: byte %d is on line %d, the interpreter says %d", c.Name, c.Table, 2*i, got, want)
					}
					instructions++
				}
			}
			if err := cmd.Wait(); err != nil || scanner.Err() != nil {
				t.Fatal(err, scanner.Err())
			}
			if instructions < 10000 {
				t.Fatalf("only %d instructions compared", instructions)
			}
			t.Logf("%d instructions equal, %d of them without a line", instructions, none)
		})
	}
}

func TestLineOfUnknownVersion(t *testing.T) {
	for _, minor := range []int{0, 5, lastVersion + 1, 255} {
		if n, ok := line(minor, 7, []byte{0x80, 0}, 0); ok {
			t.Errorf("3.%d: line %d was guessed", minor, n)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add(int32(1), []byte{0, 1, 255, 0, 3, 0x80}, uint32(4))
	f.Add(int32(3), []byte{0xf0, 0x03, 0x01, 0x01, 0x01, 0xe0, 0x02, 0x80}, uint32(2))
	f.Add(int32(-5), []byte{0xf7, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f}, uint32(0xffffffff))
	f.Fuzz(func(t *testing.T, first int32, table []byte, instruction uint32) {
		for minor := firstVersion; minor <= lastVersion; minor++ {
			a, ok := line(minor, first, table, instruction)
			if b, same := line(minor, first, table, instruction); a != b || ok != same {
				t.Fatal("two answers")
			}
		}
	})
}
