package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/profiles"
)

func TestRetentionByAge(t *testing.T) {
	dir, now := t.TempDir(), epoch
	o := Options{Dir: dir, Retention: time.Hour, Now: func() time.Time { return now }}
	s := open(t, o)
	for i := range 120 { // one a minute, for two hours
		now = epoch.Add(time.Duration(i) * time.Minute)
		add(t, s, profile("a", now.UnixNano(), 1, 1))
	}
	check := func() {
		t.Helper()
		got := selected(t, s, 0, 1<<62)
		if len(got) != 61 || got[0].TimeNanos != at(59*time.Minute) {
			t.Errorf("%d profiles are left, the first of %s", len(got), time.Unix(0, got[0].TimeNanos))
		}
	}
	check()
	files, _ := filepath.Glob(filepath.Join(dir, "*.segment"))
	if n := len(files); n < 8 || n > 10 {
		t.Errorf("%d files hold an hour in eighths", n)
	}
	s.Close()
	s = open(t, o)
	check()
	now = now.Add(2 * time.Hour)
	if got := s.Series(all, 0, 0); len(got) != 0 {
		t.Errorf("series after two quiet hours: %v", got)
	}
	s.Close()
	open(t, o)
	if files, _ = filepath.Glob(filepath.Join(dir, "*.segment")); len(files) != 0 {
		t.Errorf("files of only old profiles: %v", files)
	}
}

func TestRetentionBySize(t *testing.T) {
	dir := t.TempDir()
	const bound = 64 << 10
	s := open(t, Options{Dir: dir, MaxBytes: bound})
	for i := range 300 {
		add(t, s, profile("a", int64(i), 20, 10))
		if n := diskUse(t, dir); n > bound {
			t.Fatalf("%d bytes after %d profiles", n, i+1)
		}
	}
	got := selected(t, s, 0, 1<<62)
	for i, p := range got {
		if want := int64(300 - len(got) + i); p.TimeNanos != want {
			t.Fatalf("profile %d is of %d, want %d: what goes is the oldest", i, p.TimeNanos, want)
		}
	}
	if n := diskUse(t, dir); n < bound*3/4 {
		t.Errorf("only %d bytes of %d are used", n, bound)
	}
	if err := s.Append(context.Background(), []profiles.Profile{profile("b", 1, 3000, 100)}); err == nil || len(selected(t, s, 0, 1<<62)) != len(got) {
		t.Errorf("a profile larger than the store: %v", err)
	}
}

func diskUse(t *testing.T, dir string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.segment"))
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}
