package objects_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/agent/objects"
)

// build compiles a shared library whose build ID depends on its source.
func build(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "a.c"), filepath.Join(dir, "liba.so")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-Wl,--build-id", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("cc (apt-get install gcc libc6-dev): %v\n%s", err, out)
	}
	return so
}

func buildID(t *testing.T, name string) string {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	note, err := f.Section(".note.gnu.build-id").Data()
	if err != nil {
		t.Fatal(err)
	}
	return string(note[16:])
}

const nobody = 1<<22 + 1 // above every process number

func TestOneBuildIsOneObject(t *testing.T) {
	so := build(t, "int f(void) { return 1; }")
	key := objects.Key{BuildID: buildID(t, so)}
	s := objects.NewStore()
	first, err := s.Get(key, nobody, 0, 0, so)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(so); err != nil {
		t.Fatal(err)
	}
	again, err := s.Get(key, nobody, 0, 0, "/another/container/liba.so")
	if err != nil || again != first {
		t.Errorf("the same build in another place: %v, %v", again, err)
	}
	if o, ok := s.ByID(first.ID()); !ok || o != first {
		t.Errorf("by its identity %s: %v", first.ID(), o)
	}
	table, err := first.Rows()
	if err != nil || table.Functions == 0 {
		t.Errorf("rows of a file that was removed since: %+v, %v", table, err)
	}
	var reduced bytes.Buffer
	if err := first.Reduced(&reduced); err != nil || !bytes.HasPrefix(reduced.Bytes(), []byte(elf.ELFMAG)) {
		t.Errorf("reduced: %d bytes, %v", reduced.Len(), err)
	}
}

// A library that was replaced under a process is not what the process runs.
func TestB03AReplacedFileIsNotTakenForTheOld(t *testing.T) {
	old, replacement := build(t, "int f(void) { return 1; }"), build(t, "int f(void) { return 2; }")
	key := objects.Key{BuildID: buildID(t, old)}
	if err := os.Rename(replacement, old); err != nil {
		t.Fatal(err)
	}
	s := objects.NewStore()
	if o, err := s.Get(key, nobody, 0, 0, old); !errors.Is(err, objects.ErrGone) {
		t.Errorf("another build under the name: %v, %v", o, err)
	}
}

func TestWhatIsNoELFFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "libnot.so")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := objects.NewStore().Get(objects.Key{Inode: 7}, nobody, 0, 0, name); err == nil {
		t.Errorf("a script is an object: %v", o)
	}
	if o, err := objects.NewStore().Get(objects.Key{Inode: 8}, nobody, 0, 0, "/dev/null"); err == nil {
		t.Errorf("a device is an object: %v", o)
	}
}
