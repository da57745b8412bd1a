package elfobj_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/elfobj"
)

func TestAgainstReadelf(t *testing.T) {
	for _, path := range systemLibraries(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := open(t, path)
			if want := regexp.MustCompile(`Build ID: (\w+)`).FindStringSubmatch(run(t, "readelf", "-nW", path)); want == nil || hex.EncodeToString(f.BuildID()) != want[1] {
				t.Errorf("build ID %x, readelf says %v", f.BuildID(), want)
			}
			if id, err := f.Identity(); err != nil || id != "gnu:"+hex.EncodeToString(f.BuildID()) {
				t.Errorf("identity %s, %v", id, err)
			}
			var segments []string
			for _, s := range f.Segments() {
				segments = append(segments, fmt.Sprintf("0x%06x 0x%016x 0x%06x 0x%06x", s.Offset, s.Vaddr, s.FileSize, s.MemSize))
			}
			var want []string
			for _, m := range regexp.MustCompile(`(?m)^  LOAD +(\S+ \S+) \S+ (\S+ \S+)`).FindAllStringSubmatch(run(t, "readelf", "-lW", path), -1) {
				want = append(want, m[1]+" "+m[2])
			}
			if strings.Join(segments, "\n") != strings.Join(want, "\n") {
				t.Errorf("segments\n%v, readelf says\n%v", segments, want)
			}
			needed, err := f.NeededLibraries()
			if err != nil {
				t.Error(err)
			}
			var wantNeeded []string
			for _, m := range regexp.MustCompile(`\(NEEDED\) .*\[(.*)\]`).FindAllStringSubmatch(run(t, "readelf", "-dW", path), -1) {
				wantNeeded = append(wantNeeded, m[1])
			}
			if fmt.Sprint(needed) != fmt.Sprint(wantNeeded) {
				t.Errorf("needed %v, readelf says %v", needed, wantNeeded)
			}
			eh, ehAddress, hdr, hdrAddress, err := f.EHFrame()
			sections := run(t, "readelf", "-SW", path)
			if err != nil || len(eh) == 0 || (len(hdr) == 0) == strings.Contains(sections, ".eh_frame_hdr") {
				t.Fatalf("unwind sections of %d and %d bytes: %v", len(eh), len(hdr), err)
			}
			for name, got := range map[string]string{
				`\.eh_frame `:    fmt.Sprintf("%016x %06x", ehAddress, len(eh)),
				`\.eh_frame_hdr`: fmt.Sprintf("%016x %06x", hdrAddress, len(hdr)),
			} {
				if strings.Contains(name, "hdr") && len(hdr) == 0 {
					continue
				}
				m := regexp.MustCompile(name + ` *(?:PROGBITS|X86_64_UNWIND) +(\w+) \w+ (\w+)`).FindStringSubmatch(sections)
				if m == nil || m[1]+" "+m[2] != got {
					t.Errorf("section %s is %s, readelf says %v", name, got, m)
				}
			}
		})
	}
}

func TestSymbolsEqualReadelf(t *testing.T) {
	for _, path := range systemLibraries(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var got []string
			err := open(t, path).Symbols(func(s elfobj.Symbol) bool {
				if s.Defined() && s.Type != elf.STT_SECTION {
					name, _, _ := strings.Cut(s.Name, "@")
					got = append(got, fmt.Sprintf("%016x %d %s", s.Value, s.Size, name))
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			var dynamic, static []string
			list := &dynamic
			for _, line := range strings.Split(run(t, "readelf", "-sW", path), "\n") {
				if strings.HasPrefix(line, "Symbol table") && strings.Contains(line, ".symtab") {
					list = &static
				}
				fields := strings.Fields(line)
				if len(fields) < 8 || fields[0] == "Num:" || fields[6] == "UND" || fields[3] == "SECTION" {
					continue
				}
				size, err := strconv.ParseUint(fields[2], 0, 64) // decimal, or 0x...
				if err != nil {
					t.Fatal(err)
				}
				name, _, _ := strings.Cut(fields[7], "@")
				*list = append(*list, fmt.Sprintf("%s %d %s", fields[1], size, name))
			}
			if d := difference(strings.Join(got, "\n"), strings.Join(append(static, dynamic...), "\n")); len(got) != len(static)+len(dynamic) || d != "" {
				t.Errorf("%d symbols, readelf has %d: %s", len(got), len(static)+len(dynamic), d)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	path := build(t, program)
	found := open(t, path).Lookup("marker", "main", "printf", "absent")
	if len(found) != 2 || found["main"].Type != elf.STT_FUNC || found["main"].Value == 0 {
		t.Fatalf("found %+v; printf is only imported", found)
	}
	stripped := build(t, program, "-s", "-rdynamic")
	if found := open(t, stripped).Lookup("marker"); !found["marker"].Dynamic {
		t.Fatalf("found %+v in a stripped file that exports it", found)
	}
}

func TestRunPath(t *testing.T) {
	path := build(t, program, "-Wl,-rpath,$ORIGIN/lib", "-Wl,--enable-new-dtags")
	if got, err := open(t, path).RunPath(); got != "$ORIGIN/lib" || err != nil {
		t.Fatalf("run path %q, %v", got, err)
	}
	if got, err := open(t, build(t, program)).RunPath(); got != "" || err != nil {
		t.Fatalf("run path %q, %v of a file without one", got, err)
	}
}

func TestIdentityWithoutBuildID(t *testing.T) {
	path := build(t, program, "-Wl,--build-id=none")
	f := open(t, path)
	if f.BuildID() != nil {
		t.Fatalf("build ID %x", f.BuildID())
	}
	id, err := f.Identity()
	if err != nil {
		t.Fatal(err)
	}
	reduced := reduce(t, path)
	file := filepath.Join(t.TempDir(), "reduced")
	if err := os.WriteFile(file, reduced, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := run(t, "sha256sum", file)
	if want := "sha256:" + strings.Fields(sum)[0]; id != want {
		t.Fatalf("identity %s, sha256sum of the reduced file says %s", id, want)
	}
	small, err := elfobj.Open(bytes.NewReader(reduced), int64(len(reduced)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := small.Identity(); again != id || err != nil {
		t.Fatalf("the reduced file's identity is %s, %v, not %s", again, err, id)
	}
}

// Of a file that was cut, what is whole is read, and what is not is no secret.
func TestCutFile(t *testing.T) {
	whole, err := os.ReadFile(build(t, program))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfobj.Open(bytes.NewReader(whole), int64(len(whole))-1)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.BuildID()) == 0 || len(f.Segments()) == 0 {
		t.Error("the build ID and segments are whole, and were not read")
	}
	if err := f.Damage(); !errors.Is(err, elfobj.ErrOutside) {
		t.Errorf("damage: %v", err)
	}
	if err := f.Symbols(func(elfobj.Symbol) bool { return true }); err == nil {
		t.Error("its symbols are lost, and that is no error")
	}
}

// BOLT leaves two sections of the name: the one that .eh_frame_hdr speaks of is taken, wherever it stands.
func TestSeveralUnwindSections(t *testing.T) {
	whole, err := os.ReadFile(build(t, program))
	if err != nil {
		t.Fatal(err)
	}
	open := func() (data []byte, address uint64) {
		f, err := elfobj.Open(bytes.NewReader(whole), int64(len(whole)))
		if err != nil {
			t.Fatal(err)
		}
		data, address, _, _, err = f.EHFrame()
		if err != nil {
			t.Fatal(err)
		}
		return data, address
	}
	want, wantAddress := open()
	le := binary.LittleEndian
	headers := whole[le.Uint64(whole[40:]):]
	name := func(section int) []byte { return headers[64*section:][:4] }
	found := -1
	for i := range int(le.Uint16(whole[60:])) {
		if le.Uint64(headers[64*i+16:]) == wantAddress {
			found = i
		}
	}
	copy(name(1), name(found))       // one before it
	copy(name(found+1), name(found)) // and one after
	if got, address := open(); address != wantAddress || !bytes.Equal(got, want) {
		t.Errorf("took the section at %#x, not %#x", address, wantAddress)
	}
}

// B16: headers that promise absurd sizes cost nothing.
func TestB16AbsurdSizes(t *testing.T) {
	whole, err := os.ReadFile(build(t, program))
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	const size = 4 << 30
	if _, err := sparse.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(size); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	sectionsAt, count := le.Uint64(whole[40:]), int(le.Uint16(whole[60:]))
	for _, test := range []struct {
		name string
		size uint64
	}{{"the size of the file", size - (1 << 20)}, {"more than the file", 1 << 62}, {"all bits", 1<<64 - 1}} {
		t.Run(test.name, func(t *testing.T) {
			for i := range count {
				h := append([]byte(nil), whole[sectionsAt+uint64(64*i):][:64]...)
				le.PutUint64(h[24:], 1<<20)
				le.PutUint64(h[32:], test.size)
				if _, err := sparse.WriteAt(h, int64(sectionsAt)+int64(64*i)); err != nil {
					t.Fatal(err)
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f, err := elfobj.Open(sparse, size)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.BuildID()) == 0 {
				t.Error("the build ID is whole, and was not read")
			}
			f.Lookup("marker")
			if _, _, ok, err := f.Section(""); ok {
				t.Errorf("read a section of %d bytes: %v", test.size, err)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("%d bytes allocated", used)
			}
		})
	}
}

func FuzzFile(f *testing.F) {
	for _, flags := range [][]string{{"-pie"}, {"-no-pie", "-Wl,--build-id=none"}, {"-shared", "-fPIC"}} {
		b, err := os.ReadFile(build(f, "int marker(int x) { return x; } int main(void) { return marker(0); }", append(flags, "-nostdlib", "-Wl,-e,main", "-Wl,-z,noseparate-code")...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		file, err := elfobj.Open(r, int64(len(b)))
		if err != nil {
			return
		}
		for _, s := range file.Segments() {
			if a, ok := file.Address(s.Offset); ok {
				file.Offset(a)
			}
			file.LoadBias(0x1000, s.Offset&^0xfff)
		}
		_ = file.Symbols(func(elfobj.Symbol) bool { return true })
		file.Lookup("marker", "main")
		_, _, _, _, _ = file.EHFrame()
		_, _ = file.NeededLibraries()
		_, _ = file.RunPath()
		var out, again bytes.Buffer
		if err := elfobj.Reduce(&out, r, int64(len(b))); err != nil {
			t.Fatalf("a file that opens does not reduce: %v", err)
		}
		if err := elfobj.Reduce(&again, bytes.NewReader(out.Bytes()), int64(out.Len())); err != nil {
			t.Fatalf("a reduced file does not reduce: %v", err)
		}
		if limit := 2*len(b) + 64; out.Len() > limit {
			t.Fatalf("reduced to %d bytes from %d", out.Len(), len(b))
		}
	})
}
