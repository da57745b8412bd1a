package fakegpu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed c workloads
var sources embed.FS

// Driver is a built fake driver with its workloads. All files are in one directory and find each other and the library
// there: the programs by a run path, which LD_LIBRARY_PATH goes before.
type Driver struct {
	// Dir is the directory, for LD_LIBRARY_PATH.
	Dir string
	// Library is the fake libcuda.so.1.
	Library string
	// Chain, Inference and Bench are programs, Train and BenchPython scripts for any CPython from 3.8; each tells its
	// options with --help.
	Chain, Inference, Bench, Train, BenchPython string
}

// Env gives the settings under which a program, of whatever kind, uses the library and writes its ledger to the file,
// in the form of os.Environ. An empty ledger means none.
func (d Driver) Env(ledger string) []string {
	return []string{"LD_LIBRARY_PATH=" + d.Dir, "FAKEGPU_LEDGER=" + ledger}
}

// step is one compiler run, in the order in which they depend on each other.
type step struct {
	output   string
	compiler string
	sources  []string
	flags    []string
}

// Everything is without frame pointers, as distributions build; functions keep their own frames, so that every one of
// them is in the stack.
var (
	common = []string{"-O2", "-Wall", "-g0", "-fomit-frame-pointer", "-Wl,--build-id=sha1", "-Wl,-z,defs"}
	shared = []string{"-fPIC", "-shared"}
	linked = []string{"-L.", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"}
	framed = []string{"-fno-optimize-sibling-calls", "-pthread"}
)

func steps() []step {
	library := join(shared, []string{"-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-pthread", "-s"})
	return []step{
		{"libcuda.so.1", "gcc", []string{"c/*.c"}, library},
		{"libchain_inner.so", "gcc", []string{"workloads/chain_inner.c"}, join(shared, framed, linked)},
		{"libchain_pool.so", "g++", []string{"workloads/chain_pool.cc"}, join(shared, framed, linked, []string{"-l:libchain_inner.so"})},
		{"libchain_outer.so", "gcc", []string{"workloads/chain_outer.c"}, join(shared, framed, linked, []string{"-l:libchain_pool.so"})},
		{"chain", "gcc", []string{"workloads/chain.c"}, join(framed, []string{"-Wl,-rpath,$ORIGIN"})},
		{"inference", "g++", []string{"workloads/inference.cc"}, join(framed, linked)},
		{"libbench.so", "gcc", []string{"workloads/levels.c"}, join(shared, framed, linked)},
		{"bench", "gcc", []string{"workloads/bench.c"}, join(framed, linked, []string{"-l:libbench.so"})},
		{"libcallback.so", "gcc", []string{"workloads/callback.c"}, join(shared, framed)},
	}
}

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Build compiles the fake driver and the workloads with gcc and g++ into a directory below dir, named for the content of
// the sources, and does nothing if that is there. Several processes may build into the same dir at once.
func Build(ctx context.Context, dir string) (built Driver, err error) {
	digest, err := contentDigest()
	if err != nil {
		return Driver{}, fmt.Errorf("read fake driver's sources: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	final := filepath.Join(dir, "fakegpu-"+digest)
	if _, err := os.Stat(final); err == nil {
		return driverIn(final), nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	work, err := os.MkdirTemp(dir, "building-")
	if err != nil {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(work); e != nil && err == nil {
			err = fmt.Errorf("build fake driver: %w", e)
		}
	}()
	if err := buildIn(ctx, work); err != nil {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	// A rename onto a directory with files in it fails: then another process has built the same.
	if err := os.Rename(work, final); err != nil && !errors.Is(err, fs.ErrExist) {
		return Driver{}, fmt.Errorf("build fake driver: %w", err)
	}
	return driverIn(final), nil
}

func driverIn(dir string) Driver {
	in := func(name string) string { return filepath.Join(dir, name) }
	return Driver{
		Dir: dir, Library: in("libcuda.so.1"), Chain: in("chain"), Inference: in("inference"), Bench: in("bench"),
		Train: in("train.py"), BenchPython: in("bench.py"),
	}
}

func buildIn(ctx context.Context, dir string) error {
	sourceDir := filepath.Join(dir, "src")
	if err := os.CopyFS(sourceDir, sources); err != nil {
		return fmt.Errorf("write sources: %w", err)
	}
	for _, s := range steps() {
		if err := s.run(ctx, dir, sourceDir); err != nil {
			return fmt.Errorf("%s: %w", s.output, err)
		}
	}
	scripts, err := filepath.Glob(filepath.Join(sourceDir, "workloads", "*.py"))
	if err != nil {
		return err
	}
	for _, script := range scripts {
		if err := os.Rename(script, filepath.Join(dir, filepath.Base(script))); err != nil {
			return fmt.Errorf("place script: %w", err)
		}
	}
	return nil
}

func (s step) run(ctx context.Context, dir, sourceDir string) error {
	compiler, err := exec.LookPath(s.compiler)
	if err != nil {
		return fmt.Errorf("no %s: install it (Debian and Ubuntu: apt-get install gcc g++ libc6-dev): %w", s.compiler, err)
	}
	var files []string
	for _, pattern := range s.sources {
		found, err := filepath.Glob(filepath.Join(sourceDir, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no source %s: %w", pattern, errors.Join(err, fs.ErrNotExist))
		}
		files = append(files, found...)
	}
	c := exec.CommandContext(ctx, compiler, join([]string{"-o", s.output}, files, common, s.flags)...)
	c.Dir = dir
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// contentDigest is over everything that the built files depend on but the compiler.
func contentDigest() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := sources.ReadFile(name)
		h.Write(fmt.Appendf(nil, "%s %d\n%s", name, len(content), content))
		return err
	})
	h.Write(fmt.Append(nil, steps(), common))
	return hex.EncodeToString(h.Sum(nil))[:16], err
}
