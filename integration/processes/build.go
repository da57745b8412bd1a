// Package processes builds this repository's programs and runs them with others, as the processes that users run: tests
// start them, wait for what they say, ask them over the network, and end them gently or by SIGKILL.
package processes

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Programs are the paths of the built programs.
type Programs struct{ Vramprof, Agent, Symbolizer string }

// Build builds the programs into a folder.
func Build(ctx context.Context, dir string) (Programs, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return Programs{}, fmt.Errorf("build the programs: where this source lies is not known: test without -trimpath")
	}
	c := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "./cmd/...")
	c.Dir = filepath.Join(filepath.Dir(file), "..", "..")
	if out, err := c.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return Programs{filepath.Join(dir, "vramprof"), filepath.Join(dir, "vramprof-agent"), filepath.Join(dir, "vramprof-symbolizer")}, nil
}
