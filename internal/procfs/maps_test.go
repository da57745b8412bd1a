package procfs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procfs"
)

func TestMaps(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       procfs.Mapping
	}{
		{"library", "7f0e8c200000-7f0e8c353000 r-xp 00026000 fe:01 1835023                    /usr/lib/x86_64-linux-gnu/libc.so.6",
			procfs.Mapping{Start: 0x7f0e8c200000, End: 0x7f0e8c353000, Offset: 0x26000, Executable: true, Dev: unix.Mkdev(0xfe, 1), Inode: 1835023, Path: "/usr/lib/x86_64-linux-gnu/libc.so.6"}},
		{"data", "00400000-00401000 rw-p 00000000 00:2d 5  /a",
			procfs.Mapping{Start: 0x400000, End: 0x401000, Dev: unix.Mkdev(0, 0x2d), Inode: 5, Path: "/a"}},
		{"B03 replaced file", "00400000-00401000 r-xp 00000000 00:2d 5  /usr/lib/libcuda.so.1 (deleted)",
			procfs.Mapping{Start: 0x400000, End: 0x401000, Executable: true, Dev: unix.Mkdev(0, 0x2d), Inode: 5, Path: "/usr/lib/libcuda.so.1", Deleted: true}},
		{"spaces and a line feed", `00400000-00401000 r-xp 00000000 00:2d 5                          /a b/c  d\012e \x`,
			procfs.Mapping{Start: 0x400000, End: 0x401000, Executable: true, Dev: unix.Mkdev(0, 0x2d), Inode: 5, Path: "/a b/c  d\ne \\x"}},
		{"no name", "7fff0000-7fff1000 rwxp 00000000 00:00 0 ", procfs.Mapping{Start: 0x7fff0000, End: 0x7fff1000, Executable: true}},
		{"vdso", "7fff5a5f2000-7fff5a5f4000 r-xp 00000000 00:00 0                          [vdso]",
			procfs.Mapping{Start: 0x7fff5a5f2000, End: 0x7fff5a5f4000, Executable: true, Path: "[vdso]"}},
		{"vsyscall", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			procfs.Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Executable: true, Path: "[vsyscall]"}},
		{"memfd", "7f00-8000 r-xs 00001000 00:01 1027  /memfd:jit (deleted)",
			procfs.Mapping{Start: 0x7f00, End: 0x8000, Offset: 0x1000, Executable: true, Dev: unix.Mkdev(0, 1), Inode: 1027, Path: "/memfd:jit", Deleted: true}},
		{"large minor", "7f00-8000 r-xs 00001000 103:fffff 18446744073709551615  /x",
			procfs.Mapping{Start: 0x7f00, End: 0x8000, Offset: 0x1000, Executable: true, Dev: unix.Mkdev(0x103, 0xfffff), Inode: 1<<64 - 1, Path: "/x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []procfs.Mapping
			// What is around a mapping does not matter to it.
			text := "1000-2000 r--p 00000000 00:00 0 \n" + c.line + "\n3000-4000 r--p 00000000 00:00 0 \n"
			if err := procfs.Maps(strings.NewReader(text), collect(&got)); err != nil {
				t.Fatal(err)
			}
			if len(got) != 3 || got[1] != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMapsKeepsWhatIsGood(t *testing.T) {
	good := "1000-2000 r-xp 00000000 00:00 0 "
	for _, bad := range []string{
		"", "x", "1000 r-xp 00000000 00:00 0 ", "2000-1000 r-xp 00000000 00:00 0 ", "1000-2000 r-x 00000000 00:00 0 ", "1000-2000 r-xp 0 0 0 ",
		"1000-2000 r-xp 00000000 00:00", "10000000000000000-2 r-xp 00000000 00:00 0 ",
		"1000-2000 r-xp 00000000 00:00 0 /" + strings.Repeat("x", 1<<17),
	} {
		for _, end := range []string{"", "\n", "\n" + good, "\n" + good + "\n"} {
			var got []procfs.Mapping
			err := procfs.Maps(strings.NewReader(good+"\n"+bad+end), collect(&got))
			if want := 1 + strings.Count(end, good); len(got) != want {
				t.Errorf("%.40q: %d mappings, want %d", bad+end, len(got), want)
			}
			if (err == nil) != (bad+end == "") || err != nil && !strings.Contains(err.Error(), "1 lines not understood") {
				t.Errorf("%.40q: %v", bad+end, err)
			}
		}
	}
}

// A file with an odd name that this process maps, before and after it is removed.
func TestMapsOfThisProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name (1)\nwith a line feed")
	if err := os.WriteFile(path, make([]byte, 3*4096), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 4096, 2*4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	want := procfs.Mapping{Start: start, End: start + 2*4096, Offset: 4096, Executable: true, Dev: st.Dev, Inode: st.Ino, Path: path}
	for _, want.Deleted = range []bool{false, true} {
		if want.Deleted {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		maps, err := os.Open("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		var got procfs.Mapping
		err = procfs.Maps(maps, func(m procfs.Mapping) bool {
			if m.Start == start {
				got = m
			}
			return m.Start != start
		})
		if err := maps.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil || got != want {
			t.Errorf("got  %+v (%v)\nwant %+v", got, err, want)
		}
	}
}

func collect(to *[]procfs.Mapping) func(procfs.Mapping) bool {
	return func(m procfs.Mapping) bool { *to = append(*to, m); return true }
}

func FuzzMaps(f *testing.F) {
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1000-2000 r-xp 00000000 00:00 0 /a\\012b (deleted)"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		if err := procfs.Maps(bytes.NewReader(data), func(m procfs.Mapping) bool {
			if m.Start >= m.End {
				t.Errorf("%+v", m)
			}
			n++
			return true
		}); err == nil && n != bytes.Count(append(bytes.TrimSuffix(data, []byte("\n")), '\n'), []byte("\n")) && len(bytes.TrimSuffix(data, []byte("\n"))) > 0 {
			t.Errorf("%d mappings of %q, and no error", n, data)
		}
	})
}
