package attach

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Probe is what to run at one site. Entry and Return are programs of type Kprobe, loaded with the attach type of the
// mechanism in use; either may be nil, and both remain the caller's.
type Probe struct {
	Site
	Cookie uint64        // what bpf_get_attach_cookie gives to both programs
	Entry  *ebpf.Program // runs before the probed instruction
	Return *ebpf.Program // runs when the function returns to its caller; at the same instruction, for one breakpoint costs half of two
}

// Failure is a probe that the kernel refused.
type Failure struct {
	Probe Probe
	Err   error
}

// Attachment is a set of attached probes. Close detaches them; losing the last reference detaches them at some time.
type Attachment struct {
	links  []link.Link // in the order in which to close them
	failed []Failure
}

// Attach puts probes on one file for all processes, present and future, that map its inode. The file is only needed during
// the call; it may be deleted, replaced or in another mount namespace, for it is the descriptor that tells the inode, behind
// overlayfs too. Attaching twice to one inode counts every call twice: that is for the caller to avoid, by FileKey.
//
// Probes that the kernel refuses are left out and listed by Failed; the error is for no probe at all. Return programs are
// attached before entry programs, so that a call seen on entry is also seen on return.
func Attach(m Mechanism, file *os.File, probes []Probe) (*Attachment, error) {
	if !slices.ContainsFunc(probes, func(p Probe) bool { return p.Entry != nil || p.Return != nil }) {
		return nil, errors.New("attach: no programs given")
	}
	defer runtime.KeepAlive(file)
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", file.Name(), err)
	}
	a := &Attachment{}
	returnFailed := func(p Probe) bool {
		return slices.ContainsFunc(a.failed, func(f Failure) bool { return f.Probe.Address == p.Address })
	}
	for _, g := range group(probes, func(p Probe) *ebpf.Program { return p.Return }) {
		a.attach(m, executable, g, true)
	}
	for _, g := range group(probes, func(p Probe) *ebpf.Program { return p.Entry }) {
		g.probes = slices.DeleteFunc(g.probes, returnFailed)
		a.attach(m, executable, g, false)
	}
	slices.Reverse(a.links)
	if len(a.links) == 0 {
		return nil, fmt.Errorf("attach to %s: %s: %w", file.Name(), strings.Join(a.failed[0].Probe.Symbols, ","), a.failed[0].Err)
	}
	return a, nil
}

// Failed lists the probes that are not attached.
func (a *Attachment) Failed() []Failure { return a.failed }

// Close detaches all probes, entries first.
func (a *Attachment) Close() error {
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	a.links = nil
	return errors.Join(errs...)
}

// programSites are the probes that run one program.
type programSites struct {
	program *ebpf.Program
	probes  []Probe
}

func group(probes []Probe, program func(Probe) *ebpf.Program) []programSites {
	var groups []programSites
	for _, p := range probes {
		prog := program(p)
		if prog == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g programSites) bool { return g.program == prog })
		if i < 0 {
			i, groups = len(groups), append(groups, programSites{program: prog})
		}
		groups[i].probes = append(groups[i].probes, p)
	}
	return groups
}

// attach attaches one program. Where the kernel refuses a set of sites as a whole, each is tried alone, to lose none but the
// ones it means.
func (a *Attachment) attach(m Mechanism, ex *link.Executable, g programSites, ret bool) {
	if len(g.probes) == 0 {
		return
	}
	if m == UprobeMulti {
		l, err := multi(ex, g, ret)
		if err == nil {
			a.links = append(a.links, l)
			return
		}
		if len(g.probes) == 1 {
			a.failed = append(a.failed, Failure{g.probes[0], explain(err, m.capabilities()...)})
			return
		}
		for _, p := range g.probes {
			a.attach(m, ex, programSites{g.program, []Probe{p}}, ret)
		}
		return
	}
	for _, p := range g.probes {
		l, err := perfEvent(ex, g.program, p, ret)
		if err != nil {
			a.failed = append(a.failed, Failure{p, explain(err, m.capabilities()...)})
			continue
		}
		a.links = append(a.links, l)
	}
}

func multi(ex *link.Executable, g programSites, ret bool) (link.Link, error) {
	o := &link.UprobeMultiOptions{}
	slices.SortStableFunc(g.probes, func(a, b Probe) int { return cmp.Compare(a.Address, b.Address) })
	for _, p := range g.probes {
		o.Addresses = append(o.Addresses, p.FileOffset+p.ProbeOffset)
		o.Cookies = append(o.Cookies, p.Cookie)
	}
	if ret {
		return ex.UretprobeMulti(nil, g.program, o)
	}
	return ex.UprobeMulti(nil, g.program, o)
}

func perfEvent(ex *link.Executable, program *ebpf.Program, p Probe, ret bool) (link.Link, error) {
	o := &link.UprobeOptions{Address: p.FileOffset + p.ProbeOffset, Cookie: p.Cookie}
	if ret {
		return ex.Uretprobe("", program, o)
	}
	return ex.Uprobe("", program, o)
}
