package mappings

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vramprof/vramprof/internal/procfs"
)

// threads are the threads of every process that are alive. The kernel reports the end of each thread and not that of a
// process, and the first thread may end before the others do.
type threads map[uint32]map[uint32]struct{}

func (t threads) start(pid, tid uint32) {
	if t[pid] == nil {
		t[pid] = map[uint32]struct{}{}
	}
	t[pid][tid] = struct{}{}
}

// end is true if that was the last thread.
func (t threads) end(pid, tid uint32) bool {
	delete(t[pid], tid)
	if len(t[pid]) > 0 {
		return false
	}
	_, known := t[pid]
	delete(t, pid)
	return known || pid == tid
}

// execute leaves one thread: exec ends the others, and the one that called it takes the number of the first.
func (t threads) execute(pid uint32) {
	t[pid] = map[uint32]struct{}{pid: {}}
}

// census reads which threads there are.
func census(procRoot string) (threads, error) {
	pids, err := numbers(procRoot)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	t := threads{}
	for _, pid := range pids {
		dir := filepath.Join(procRoot, strconv.Itoa(int(pid)))
		tids, err := numbers(filepath.Join(dir, "task"))
		if err != nil {
			continue // it is gone
		}
		b, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		stat, err := procfs.ParseStat(b)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		for _, tid := range tids {
			// An ended first thread stays listed for as long as there are others, and until the parent asks for its status.
			if tid != pid || stat.State != 'Z' && stat.State != 'X' {
				t.start(pid, tid)
			}
		}
	}
	return t, nil
}

// numbers lists the entries of a directory that are numbers.
func numbers(dir string) ([]uint32, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 32); err == nil {
			out = append(out, uint32(n))
		}
	}
	return out, nil
}
