// Package pythons finds the CPythons under test: Debian's own, four standalone builds that are fetched as a Go module, and
// those of pyenv where the machine has it. One that should be there and is not is an error, so that no test passes by
// testing nothing.
//
// The standalone builds (github.com/astral-sh/python-build-standalone, as github.com/kluctl/go-embed-python carries them)
// are only run, never committed or shipped. They are kept in a cache folder: $VRAMPROF_CACHE, or vramprof in the user's.
package pythons

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Source is where an interpreter comes from.
type Source string

// The sources.
const (
	Pyenv      Source = "pyenv"
	Debian     Source = "debian"
	Standalone Source = "standalone"
)

// Interpreter is one CPython that has been run.
type Interpreter struct {
	// Version is as in "3.11.7".
	Version string
	// Minor is its second number.
	Minor  int
	Source Source
	// Path is the executable.
	Path string
}

// String names it in a test's output: "pyenv-3.11.7".
func (i Interpreter) String() string { return string(i.Source) + "-" + i.Version }

// Find gives all interpreters under test, after having run each. The first call on a machine fetches and unpacks the
// standalone builds: some 500 MB.
func Find(ctx context.Context) ([]Interpreter, error) {
	found, err := findPyenv(ctx)
	if err != nil {
		return nil, err
	}
	system, err := ask(ctx, Debian, "/usr/bin/python3")
	if err != nil {
		return nil, fmt.Errorf("%w: install the distribution's python3", err)
	}
	found = append(found, system)
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	for _, b := range standalone {
		root, err := b.unpacked(ctx, cache)
		if err != nil {
			return nil, fmt.Errorf("standalone python %s: %w", b.version, err)
		}
		i, err := ask(ctx, Standalone, filepath.Join(root, "bin", "python3"))
		if err != nil {
			return nil, err
		}
		if i.Version != b.version {
			return nil, fmt.Errorf("%s is python %s, not %s: remove the folder %s", i.Path, i.Version, b.version, root)
		}
		found = append(found, i)
	}
	return found, nil
}

// pyenvMinors are the versions that a pyenv must have.
var pyenvMinors = []int{10, 11, 12, 13}

func findPyenv(ctx context.Context) ([]Interpreter, error) {
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("look for pyenv: %w", err)
		}
		root = filepath.Join(home, ".pyenv")
	}
	if _, err := os.Stat(root); os.IsNotExist(err) {
		return nil, nil
	}
	var found []Interpreter
	for _, minor := range pyenvMinors {
		paths, err := filepath.Glob(filepath.Join(root, "versions", fmt.Sprintf("3.%d.*", minor), "bin", "python3"))
		if err != nil {
			return nil, fmt.Errorf("look for pyenv's python 3.%d: %w", minor, err)
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("pyenv in %s has no python 3.%d: install one", root, minor)
		}
		for _, p := range paths {
			i, err := ask(ctx, Pyenv, p)
			if err != nil {
				return nil, err
			}
			found = append(found, i)
		}
	}
	return found, nil
}

// ask runs an interpreter and has it tell its version.
func ask(ctx context.Context, source Source, path string) (Interpreter, error) {
	out, err := exec.CommandContext(ctx, path, "-I", "-c", `import sys; print("%d.%d.%d" % sys.version_info[:3])`).Output()
	if err != nil {
		return Interpreter{}, fmt.Errorf("run %s: %w", path, err)
	}
	i := Interpreter{Version: strings.TrimSpace(string(out)), Source: source, Path: path}
	if _, err := fmt.Sscanf(i.Version, "3.%d.", &i.Minor); err != nil {
		return Interpreter{}, fmt.Errorf("version of %s is %q: %w", path, i.Version, err)
	}
	return i, nil
}

func cacheFolder() (string, error) {
	if cache := os.Getenv("VRAMPROF_CACHE"); cache != "" {
		return filepath.Join(cache, "pythons"), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder for standalone pythons: %w: set VRAMPROF_CACHE", err)
	}
	return filepath.Join(cache, "vramprof", "pythons"), nil
}
