package store_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolizer/store"
)

const build = "gnu:00ffaa"

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func content(data string) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.WriteString(data)
		return err
	}
}

func read(t testing.TB, s *store.Store) string {
	t.Helper()
	f, err := s.Read(build, "symbols")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFilesSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Read(build, "symbols"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("read of what is not there: %v", err)
	}
	for _, data := range []string{"first", "second"} {
		if err := s.Write(build, "symbols", content(data)); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("broke off")
	err := s.Write(build, "symbols", func(f *os.File) error { return errors.Join(content("half")(f), failed) })
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if got := read(t, open(t, dir)); got != "second" {
		t.Fatalf("read %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "temporary")); err != nil || len(left) > 0 {
		t.Fatalf("left over: %v, %v", left, err)
	}
}

func TestNoPathOfForeignInput(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store"))
	for _, id := range []string{
		"", "gnu:", "gnu:..", "gnu:../../../x", "sha256:../..", "gnu:0", "gnu:0G", "GNU:00", "gnu:00\n", "gnu:00/..", "other:00",
		"gnu:" + strings.Repeat("0", 130), "sha256:00", "gnu:00\x00",
	} {
		if err := s.Write(id, "symbols", content("x")); !errors.Is(err, store.ErrBuildID) {
			t.Errorf("build ID %q: %v", id, err)
		}
		if _, err := s.Read(id, "symbols"); !errors.Is(err, store.ErrBuildID) {
			t.Errorf("build ID %q: %v", id, err)
		}
	}
	for _, id := range []string{build, "gnu:" + strings.Repeat("0a", 64), "sha256:" + strings.Repeat("0a", 32)} {
		if err := s.Write(id, "symbols", content("x")); err != nil {
			t.Errorf("build ID %q: %v", id, err)
		}
	}
}

func TestOpenRemovesWhatIsStale(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	old, err := s.Temporary()
	if err != nil {
		t.Fatal(err)
	}
	young, err := s.Temporary()
	if err != nil {
		t.Fatal(err)
	}
	defer old.Discard()
	defer young.Discard()
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(old.Name(), past, past); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(old.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stale file: %v", err)
	}
	if _, err := os.Stat(young.Name()); err != nil {
		t.Errorf("file of a running upload: %v", err)
	}
}

func TestOpenNamesTheNextStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(filepath.Join(file, "store"))
	if err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Fatal(err)
	}
}

// A disk that is full, a real one: needs the right to mount.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("mount a small disk (run the tests as root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, dir)
	if err := s.Write(build, "symbols", content("good")); err != nil {
		t.Fatal(err)
	}
	log, _, err := s.Log("python", func([]byte, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	place, err := log.Append([]byte("good"))
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	if err := s.Write(build, "symbols", content(large)); !errors.Is(err, store.ErrFull) {
		t.Errorf("write: %v", err)
	}
	if _, err := log.Append([]byte(large)); !errors.Is(err, store.ErrFull) {
		t.Errorf("append: %v", err)
	}
	temporary, err := s.Temporary()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := temporary.Write([]byte(large)); !errors.Is(err, store.ErrFull) {
		t.Errorf("spool: %v", err)
	}
	temporary.Discard()
	if got := read(t, s); got != "good" {
		t.Errorf("the file is %.10q now", got)
	}
	if got, err := log.Read(place[0]); string(got) != "good" || err != nil {
		t.Errorf("the record is %.10q now, %v", got, err)
	}
}
