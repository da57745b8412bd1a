package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/agent/attach"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/agent/process"
)

// attachMapping puts the probes on the file behind a mapping, unless its inode has them.
func (a *Agent) attachMapping(pid uint32, m process.Mapping, w *watched) error {
	var problem error
	for _, c := range []string{fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End), fmt.Sprintf("/proc/%d/root%s", pid, m.Path)} {
		attached := len(a.attached)
		err := a.attachFile(c)
		if err == nil && len(a.attached) > attached && a.scanned {
			a.note(w, "driver library attached just after a process had mapped it: calls of the first milliseconds may be missing", "file", m.Path, "pid", pid)
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrPermission) {
			return err
		}
		problem = err
	}
	return problem
}

func (a *Agent) attachFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	key, err := attach.FileKey(f)
	if err != nil {
		return err
	}
	if a.attached[key] != nil {
		return nil
	}
	symbols := make([]string, 0, len(a.calls))
	for _, c := range a.calls {
		symbols = append(symbols, c.Symbol)
	}
	plan, err := attach.NewPlan(f, symbols)
	if err != nil {
		return fmt.Errorf("plan probes on %s: %w", name, err)
	}
	probes := a.probes(plan)
	if len(probes) == 0 {
		return fmt.Errorf("%s exports no function of a driver", name)
	}
	attachment, err := attach.Attach(a.mechanism, f, probes)
	if err != nil {
		return fmt.Errorf("attach to %s: %w", name, err)
	}
	a.attached[key] = attachment
	for _, failed := range attachment.Failed() {
		a.health.Unattached[strings.Join(failed.Probe.Symbols, ",")]++
		a.log.Warn("function not probed, its memory is not seen", "file", name, "functions", failed.Probe.Symbols, "error", failed.Err)
	}
	var unknown []string
	for _, s := range plan.Exported {
		if gpuapi.LooksLikeAllocator(s) {
			unknown = append(unknown, s)
		}
	}
	a.log.Info("attached", "file", name, "mechanism", a.mechanism.String(), "probes", len(probes)-len(attachment.Failed()), "unknown_allocators", unknown)
	return nil
}

func (a *Agent) probes(plan attach.Plan) []attach.Probe {
	row := map[string]int{}
	for i, c := range a.calls {
		row[c.Symbol] = i
	}
	var probes []attach.Probe
	for _, site := range plan.Sites {
		i := row[site.Symbols[0]]
		p := attach.Probe{Site: site, Cookie: uint64(i)}
		switch a.calls[i].Role {
		case gpuapi.RoleAllocate:
			p.Entry, p.Return = a.kernel.Allocate()
		case gpuapi.RoleFree:
			p.Entry, p.Return = a.kernel.Free()
		default:
			continue
		}
		probes = append(probes, p)
	}
	return probes
}
