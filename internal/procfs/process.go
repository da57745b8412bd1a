package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Stat is what /proc/PID/stat says.
type Stat struct {
	PID uint32
	// Comm is the name of the leading thread, at most 15 bytes of any value.
	Comm string
	// State is that of the leading thread: R, S, D, Z (it has ended, others of the process may not have) and so on.
	State byte
	PPID  uint32
	// StartTime is in clock ticks, of which there are 100 a second, since boot.
	StartTime uint64
	// StartStack is the address of the bottom of the stack, which differs from exec to exec. It is 0 for a kernel thread and
	// for a reader who may not trace the process.
	StartStack uint64
}

// ParseStat reads /proc/PID/stat (do_task_stat, fs/proc/array.c).
func ParseStat(data []byte) (Stat, error) {
	pid, rest, ok := bytes.Cut(data, []byte(" ("))
	last := bytes.LastIndexByte(rest, ')') // the name may hold any number of these
	if !ok || last < 0 {
		return Stat{}, errors.New("parse stat: no command name in parentheses")
	}
	fields := strings.Fields(string(rest[last+1:]))
	const state = 3 // the number that proc(5) gives the field behind the name
	if len(fields) <= 28-state {
		return Stat{}, fmt.Errorf("parse stat: %d fields behind the name, 26 expected", len(fields))
	}
	s := Stat{Comm: string(rest[:last]), State: fields[0][0]}
	for _, f := range []struct {
		name, text string
		to         func(uint64)
		bits       int
	}{
		{"pid", string(pid), func(v uint64) { s.PID = uint32(v) }, 32},
		{"ppid", fields[4-state], func(v uint64) { s.PPID = uint32(v) }, 32},
		{"starttime", fields[22-state], func(v uint64) { s.StartTime = v }, 64},
		{"startstack", fields[28-state], func(v uint64) { s.StartStack = v }, 64},
	} {
		v, err := strconv.ParseUint(f.text, 10, f.bits)
		if err != nil {
			return Stat{}, fmt.Errorf("parse stat: %s: %w", f.name, err)
		}
		f.to(v)
	}
	return s, nil
}

// NSPids reads the NSpid line of /proc/PID/status: the number that a process has in each PID namespace, from the reader's
// inwards. It is nil if there is no such line (a kernel without CONFIG_PID_NS).
func NSPids(status []byte) []uint32 {
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "NSpid" {
			continue
		}
		var pids []uint32
		for _, f := range strings.Fields(value) {
			pid, err := strconv.ParseUint(f, 10, 32)
			if err != nil {
				return nil
			}
			pids = append(pids, uint32(pid))
		}
		return pids
	}
	return nil
}

// Cmdline splits /proc/PID/cmdline into arguments. A process that wrote a title over its arguments has one.
func Cmdline(data []byte) []string {
	data = bytes.TrimRight(data, "\x00")
	if len(data) == 0 {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

// Environ reads /proc/PID/environ: what the process was started with. Of a name that is there twice the first stands, as
// for getenv.
func Environ(data []byte) map[string]string {
	environ := map[string]string{}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		name, value, ok := strings.Cut(string(entry), "=")
		if _, twice := environ[name]; ok && name != "" && !twice {
			environ[name] = value
		}
	}
	return environ
}

// Cgroup is one line of /proc/PID/cgroup: the group that the process has in one hierarchy.
type Cgroup struct {
	// Controllers are those of a version 1 hierarchy, or its name as name=systemd; nil for version 2.
	Controllers []string
	// Path is relative to the root of the reader's cgroup namespace, so it may begin with "/..".
	Path string
}

// Cgroups reads /proc/PID/cgroup (proc_cgroup_show, kernel/cgroup/cgroup.c). Lines that are not understood are left out.
func Cgroups(data []byte) []Cgroup {
	var groups []Cgroup
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		g := Cgroup{Path: strings.TrimSuffix(fields[2], deletedSuffix)}
		if fields[1] != "" {
			g.Controllers = strings.Split(fields[1], ",")
		}
		groups = append(groups, g)
	}
	return groups
}
