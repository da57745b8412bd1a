package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/integration/pythons"
)

// interpreters are the CPythons under test, and those of pyenv that are older than what agents walk, for the older
// formats.
func interpreters(t testing.TB) map[string]string {
	t.Helper()
	found, err := pythons.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, i := range found {
		out[i.String()] = i.Path
	}
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(home, ".pyenv")
	}
	older, err := filepath.Glob(filepath.Join(root, "versions", "3.[6-9].*", "bin", "python3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range older {
		version, err := exec.Command(path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
		if err != nil {
			t.Fatal(err)
		}
		out["pyenv-"+strings.TrimSpace(string(version))] = path
	}
	return out
}
