package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Preflight tries on this machine what attaching by one mechanism needs: to load a program and to probe with it (the entry
// point of the running program, which is not passed again). It also asks for CAP_SYS_PTRACE, without which files cannot be
// opened through processes of others. The error has one line for each that fails, with the missing capability or the
// setting at fault, and is nil if nothing fails.
func Preflight(m Mechanism) error {
	var errs []error
	if err := tryProbe(m); err != nil {
		errs = append(errs, err)
	}
	// There is no process to try it on that surely exists: some systems guard process 1 from everyone.
	if have, err := effective(); err != nil {
		errs = append(errs, err)
	} else if have&(1<<unix.CAP_SYS_PTRACE) == 0 {
		errs = append(errs, errors.New("look into processes of others: missing CAP_SYS_PTRACE"))
	}
	return errors.Join(errs...)
}

func tryProbe(m Mechanism) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "preflight",
		Type:         ebpf.Kprobe,
		AttachType:   m.AttachType(),
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Apache-2.0",
	})
	if err != nil {
		return explain(fmt.Errorf("load a BPF program: %w", err), unix.CAP_BPF, unix.CAP_PERFMON)
	}
	defer program.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("probe this program: %w", err)
	}
	defer self.Close()
	f, err := elf.NewFile(self)
	if err != nil {
		return fmt.Errorf("probe this program: %w", err)
	}
	segment, ok := executable(f, f.Entry)
	if !ok {
		return fmt.Errorf("probe this program: its entry point %#x is in no executable segment", f.Entry)
	}
	entry := Site{Symbols: []string{"the entry point"}, Address: f.Entry, FileOffset: segment.Off + f.Entry - segment.Vaddr}
	a, err := Attach(m, self, []Probe{{Site: entry, Cookie: 1, Entry: program}})
	if err != nil {
		return fmt.Errorf("probe this program: %w", err)
	}
	if err := a.Close(); err != nil {
		return fmt.Errorf("probe this program: detach: %w", err)
	}
	return nil
}

// capabilities are what the kernel asks for when a program is attached.
func (m Mechanism) capabilities() []uint {
	if m == UprobeMulti {
		return []uint{unix.CAP_BPF, unix.CAP_PERFMON}
	}
	return []uint{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}
}

// explain adds to a refusal which of the capabilities it needs are missing, or, if none is, what else refuses. The system
// call says EPERM or EACCES for all of them.
func explain(err error, needs ...uint) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	have, capErr := effective()
	if capErr != nil {
		return errors.Join(err, capErr)
	}
	var missing []string
	for _, c := range needs {
		if have&(1<<c) == 0 {
			missing = append(missing, capabilityName(c))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: missing %s", err, strings.Join(missing, ", "))
	}
	return fmt.Errorf("%w: no capability is missing; look for a seccomp profile, and at the kernel's settings: %s", err, settings(os.DirFS("/")))
}

// settings tells the values of what refuses eBPF and perf events to a process with all capabilities.
func settings(root fs.FS) string {
	var all []string
	for _, path := range []string{"sys/kernel/security/lockdown", "proc/sys/kernel/perf_event_paranoid", "proc/sys/kernel/unprivileged_bpf_disabled"} {
		value, err := fs.ReadFile(root, path)
		if err != nil {
			value = []byte("not readable")
		}
		all = append(all, fmt.Sprintf("/%s: %s", path, strings.TrimSpace(string(value))))
	}
	return strings.Join(all, ", ")
}

// effective gives this thread's effective capabilities as a bit set.
func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

func capabilityName(c uint) string {
	switch c {
	case unix.CAP_BPF:
		return "CAP_BPF"
	case unix.CAP_PERFMON:
		return "CAP_PERFMON"
	case unix.CAP_SYS_PTRACE:
		return "CAP_SYS_PTRACE"
	case unix.CAP_SYS_ADMIN:
		return "CAP_SYS_ADMIN"
	}
	return fmt.Sprintf("capability %d", c)
}
