package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/vramprof/vramprof/internal/profiles"
)

// TestTornTail cuts the file at every byte of the last record, and expects the
// records before it, and that the store goes on.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	a, b, c := profile("a", 1, 2, 3), profile("a", 2, 2, 3), profile("a", 3, 2, 3)
	add(t, s, a)
	whole := s.active.size
	add(t, s, b)
	s.Close()
	data, err := os.ReadFile(segmentPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for cut := int64(0); cut < int64(len(data)); cut++ {
		torn := t.TempDir()
		if err := os.WriteFile(segmentPath(torn, 1), data[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		want := []profiles.Profile(nil)
		if cut >= whole {
			want = []profiles.Profile{a}
		}
		s := open(t, Options{Dir: torn})
		if got := selected(t, s, 0, 9); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: got %v, want %v", cut, got, want)
		}
		add(t, s, c)
		s.Close()
		s = open(t, Options{Dir: torn})
		if got := selected(t, s, 0, 9); !reflect.DeepEqual(got, append(want, c)) {
			t.Fatalf("cut at %d, then appended: got %v, want %v", cut, got, append(want, c))
		}
		s.Close()
	}
}

// TestDamage flips each byte of the middle one of three records. The others are
// kept, except that a changed length may hide what follows it.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	ps := []profiles.Profile{profile("a", 1, 2, 3), profile("a", 2, 2, 3), profile("a", 3, 2, 3)}
	add(t, s, ps[0])
	from := s.active.size
	add(t, s, ps[1])
	to := s.active.size
	add(t, s, ps[2])
	s.Close()
	data, err := os.ReadFile(segmentPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		data[i] ^= 0x55
		if err := os.WriteFile(segmentPath(dir, 1), data, 0o644); err != nil {
			t.Fatal(err)
		}
		data[i] ^= 0x55
		s := open(t, Options{Dir: dir})
		got, want := selected(t, s, 0, 9), []profiles.Profile{ps[0], ps[2]}
		if i < from+4 && len(got) == 1 {
			want = want[:1]
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("byte %d: got %v", i-from, got)
		}
		s.Close()
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0000000000000001.segment", "notes.txt", "2.segment"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("something else entirely"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, Options{Dir: dir})
	p := profile("a", 1, 1, 1)
	add(t, s, p)
	s.Close()
	if got := selected(t, open(t, Options{Dir: dir}), 0, 9); !reflect.DeepEqual(got, []profiles.Profile{p}) {
		t.Errorf("got %v", got)
	}
	if b, err := os.ReadFile(segmentPath(dir, 1)); err != nil || string(b) != "something else entirely" {
		t.Errorf("the foreign file is now %q, %v", b, err)
	}
}

// TestFullDisk fills a file system of 256 KiB: the error says so, what was stored
// stays, and there is nothing of what was not.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("mount a small file system (the test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, Options{Dir: dir})
	kept := 0
	var err error
	for ; kept < 1000 && err == nil; kept++ {
		err = s.Append(context.Background(), []profiles.Profile{profile("a", int64(kept), 200, 20)})
	}
	kept--
	if !errors.Is(err, syscall.ENOSPC) || kept < 5 {
		t.Fatalf("after %d profiles: %v", kept, err)
	}
	if got := selected(t, s, 0, 1000); len(got) != kept {
		t.Errorf("%d of %d profiles are left", len(got), kept)
	}
	s.Close()
	s = open(t, Options{Dir: dir})
	if got := selected(t, s, 0, 1000); len(got) != kept || s.active.torn {
		t.Errorf("after restart %d of %d profiles are left, torn %v", len(got), kept, s.active.torn)
	}
}
