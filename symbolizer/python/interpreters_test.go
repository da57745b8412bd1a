package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// interpreters are the CPython interpreters of this machine, by version: the system's, and pyenv's where it has any.
func interpreters(t testing.TB) map[string]string {
	t.Helper()
	candidates := []string{"/usr/bin/python3", "python3"}
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(home, ".pyenv")
	}
	pyenv, err := filepath.Glob(filepath.Join(root, "versions", "3.*", "bin", "python3"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range append(candidates, pyenv...) {
		version, err := exec.Command(c, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
		if err == nil {
			out[strings.TrimSpace(string(version))] = c
		}
	}
	if len(out) == 0 {
		t.Fatal("no python3 found: install one")
	}
	return out
}
