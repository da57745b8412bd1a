package pythons

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFindGivesEveryStandaloneBuildAndTheSystemsOwn(t *testing.T) {
	found, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(found)
	got := map[string]int{}
	for _, i := range found {
		got[i.String()]++
		got[string(i.Source)]++
	}
	for _, b := range standalone {
		if got["standalone-"+b.version] != 1 {
			t.Errorf("standalone python %s found %d times", b.version, got["standalone-"+b.version])
		}
	}
	if got["debian"] != 1 {
		t.Errorf("the system's python found %d times", got["debian"])
	}
}

func TestFindDoesWithoutPyenvButNotWithHalfOfIt(t *testing.T) {
	t.Setenv("PYENV_ROOT", filepath.Join(t.TempDir(), "none"))
	found, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range found {
		if i.Source == Pyenv {
			t.Errorf("%s without pyenv", i)
		}
	}
	t.Setenv("PYENV_ROOT", t.TempDir())
	if _, err := Find(t.Context()); err == nil || !strings.Contains(err.Error(), "no python 3.10") {
		t.Errorf("a pyenv without interpreters: %v", err)
	}
}

func TestAnotherModuleThanThePinnedIsRefused(t *testing.T) {
	b := standalone[0]
	b.sum = standalone[1].sum
	if _, err := b.unpacked(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "not what was tested before") {
		t.Error(err)
	}
}

func TestUnpackRefusesWhatFilesJSONDoesNotSay(t *testing.T) {
	for name, from := range map[string]fstest.MapFS{
		"name outside": {"files.json": {Data: []byte(`{"files":[{"name":"../a","size":1,"perm":420}]}`)}, "a": {Data: []byte("a")}},
		"longer":       {"files.json": {Data: []byte(`{"files":[{"name":"a","size":1,"perm":420}]}`)}, "a": {Data: []byte("ab")}},
		"shorter":      {"files.json": {Data: []byte(`{"files":[{"name":"a","size":2,"perm":420}]}`)}, "a": {Data: []byte("a")}},
		"no gzip":      {"files.json": {Data: []byte(`{"files":[{"name":"a","size":1,"perm":420,"compressed":true}]}`)}, "a.gz": {Data: []byte("a")}},
		"no list":      {},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "to")
			if err := os.Mkdir(to, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unpack(from, to); err == nil {
				t.Error("no error")
			}
		})
	}
}
