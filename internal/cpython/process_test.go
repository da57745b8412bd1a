package cpython

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/integration/pythons"
)

// elfFile is a File by the standard library.
type elfFile struct{ *elf.File }

func (f elfFile) Lookup(name string) (address uint64, ok bool) {
	for _, table := range []func() ([]elf.Symbol, error){f.DynamicSymbols, f.Symbols} {
		symbols, err := table()
		if err != nil {
			continue // there is none
		}
		for _, s := range symbols {
			if s.Name == name && s.Section != elf.SHN_UNDEF {
				return s.Value, true
			}
		}
	}
	return 0, false
}

func (f elfFile) ReadAddress(b []byte, address uint64) error {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address+uint64(len(b)) <= p.Vaddr+p.Filesz {
			_, err := p.ReadAt(b, int64(address-p.Vaddr))
			return err
		}
	}
	return fmt.Errorf("%#x is not in the file", address)
}

// interpreters gives the CPythons under test; a test must not pass without them.
func interpreters(t *testing.T) []pythons.Interpreter {
	t.Helper()
	found, err := pythons.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// recogniseProcess finds the interpreter among the files that a process maps, and where _PyRuntime is in it.
func recogniseProcess(t *testing.T, pid int) (Interpreter, uint64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var start, end, offset, inode uint64
		var perms, device, path string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %d %s", &start, &end, &perms, &offset, &device, &inode, &path); n < 7 || path[0] != '/' {
			continue
		}
		f, err := elf.Open(path)
		if err != nil {
			continue // not every mapped file is ELF
		}
		defer f.Close()
		i, ok, err := Recognise(elfFile{f})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !ok {
			continue
		}
		// Only where a segment begins: libffi maps a page of its code a second time, elsewhere.
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && offset == p.Off&^0xfff {
				return i, i.Runtime + start - offset + p.Off - p.Vaddr
			}
		}
	}
	t.Fatalf("no interpreter in process %d", pid)
	return Interpreter{}, 0
}

// told is what testdata/stacks.py says of its threads.
type told struct {
	Threads []struct {
		Ident  uint64
		Frames []toldFrame
	}
}

type toldFrame struct {
	Code                     uint64
	Filename, Name, Qualname string
	Firstline                int32
	Linetable                string
	Lasti                    int
}

// run runs testdata/stacks.py and calls stopped each time it has stopped itself.
func run(t *testing.T, python pythons.Interpreter, stopped func(pid int, now told)) {
	t.Helper()
	cmd := exec.Command(python.Path, "-I", "testdata/stacks.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing to kill if all went well
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var now told
		if err := json.Unmarshal(line, &now); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED, nil); err != nil {
			t.Fatal(err)
		}
		stopped(cmd.Process.Pid, now)
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// memory reads a process's memory as numbers.
type memory struct {
	io.ReaderAt
	t *testing.T
}

func openMemory(t *testing.T, pid int) memory {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return memory{f, t}
}

func (m memory) uint(address uint64, size int) uint64 {
	m.t.Helper()
	b := make([]byte, 8)
	if _, err := m.ReadAt(b[:size], int64(address)); err != nil {
		m.t.Fatalf("read %d bytes at %#x: %v", size, address, err)
	}
	return binary.LittleEndian.Uint64(b)
}

func (m memory) pointer(address uint64) uint64 { return m.uint(address, 8) }

// frame is one frame that walk found.
type frame struct{ code, word uint64 }

// walk follows a thread's frames by a layout alone, as the kernel half does: from the thread pointer to the outermost
// frame, shim frames left out.
func (m memory) walk(l Layout, runtime, threadPointer uint64) (frames []frame, anchors []uint64) {
	m.t.Helper()
	thread := m.threadState(l, runtime, threadPointer)
	var cframe uint64
	if l.Thread.CFrame != 0 {
		cframe = m.pointer(thread + uint64(l.Thread.CFrame))
	}
	at := cframe + uint64(l.CFrame.Current)
	if l.Thread.HasFrame {
		at = thread + uint64(l.Thread.Frame)
	}
	for at = m.pointer(at); at != 0; at = m.pointer(at + uint64(l.Frame.Previous)) {
		entry := l.Frame.Entry == EntryAlways || m.uint(at+uint64(l.Frame.EntryAt), 1) == uint64(l.Frame.EntryValue)
		if entry && l.Frame.Entry == EntryShim {
			anchors = append(anchors, at)
			continue
		}
		if entry {
			anchors = append(anchors, cframe)
			cframe = m.pointer(cframe + uint64(l.CFrame.Previous))
		}
		frames = append(frames, frame{
			code: m.pointer(at+uint64(l.Frame.Code)) &^ uint64(l.Frame.CodeTag),
			word: m.uint(at+uint64(l.Frame.Instruction), int(l.Frame.InstructionSize)),
		})
	}
	return frames, anchors
}

func (m memory) threadState(l Layout, runtime, threadPointer uint64) uint64 {
	m.t.Helper()
	// Py_tss_t is {is_initialized, key}; key 0 alone could be anything.
	if m.uint(runtime+l.AutoTSSKey-4, 4) != 1 {
		m.t.Fatal("no initialised key at AutoTSSKey")
	}
	key := m.uint(runtime+l.AutoTSSKey, 4)
	if key >= 32 {
		m.t.Fatalf("key %d", key)
	}
	return m.pointer(threadPointer + ThreadKeys + 16*key + 8)
}
