package mappings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/internal/procfs"
)

// maxBuildID is BUILD_ID_SIZE_MAX of the kernel (include/linux/buildid.h), which knows no longer ones.
const maxBuildID = 20

// Scan gives the processes that are there and have something mapped executable: for each an Exec, at the time at which
// the process started, and its Mmaps; or an Unreadable. A process that ends meanwhile is left out. An error says that
// processes could not be listed at all.
func Scan(procRoot string, yield func(Event)) error {
	pids, err := numbers(procRoot)
	if err != nil {
		return fmt.Errorf("scan processes: %w", err)
	}
	behind, err := clockOffset()
	if err != nil {
		return fmt.Errorf("scan processes: %w", err)
	}
	s := scanner{files: map[file][]byte{}}
	for _, pid := range pids {
		events, err := s.process(filepath.Join(procRoot, strconv.Itoa(int(pid))), pid, behind)
		for _, e := range events {
			yield(e)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			yield(Unreadable{PID: pid, Err: err})
		}
	}
	return nil
}

type file struct{ dev, inode uint64 }

type scanner struct {
	files map[file][]byte // build IDs
}

func (s *scanner) process(dir string, pid uint32, behind uint64) ([]Event, error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil, err
	}
	stat, err := procfs.ParseStat(b)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	time := stat.StartTime * 1e7 // 100 ticks a second
	time -= min(behind, time)
	found, err := executable(dir)
	if len(found) == 0 {
		if err == nil && stat.State == 'Z' { // its first thread has ended; others may live on
			found, err = ofThreads(dir)
		}
		if len(found) == 0 {
			return nil, err
		}
	}
	events := []Event{Exec{PID: pid, ParentPID: stat.PPID, Comm: stat.Comm, Time: time}}
	for _, m := range found {
		event := Mmap{PID: pid, TID: pid, Start: m.Start, End: m.End, Offset: m.Offset, Path: m.Path, Deleted: m.Deleted, Dev: m.Dev, Inode: m.Inode, Time: time}
		if m.Inode != 0 {
			event.BuildID = s.buildID(dir, m)
		}
		events = append(events, event)
	}
	return events, err
}

func executable(dir string) ([]procfs.Mapping, error) {
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []procfs.Mapping
	err = procfs.Maps(f, func(m procfs.Mapping) bool {
		if m.Executable && m.Path != "[vsyscall]" { // no memory of the process, and not reported by the kernel
			found = append(found, m)
		}
		return true
	})
	return found, err
}

func ofThreads(dir string) ([]procfs.Mapping, error) {
	tids, err := numbers(filepath.Join(dir, "task"))
	for _, tid := range tids {
		found, err := executable(filepath.Join(dir, "task", strconv.Itoa(int(tid))))
		if len(found) > 0 {
			return found, err
		}
	}
	return nil, err
}

// buildID reads the build ID of a mapped file; nil if it has none or cannot be read. What is at the file's path may be
// another file by now, or in another mount namespace.
func (s *scanner) buildID(dir string, m procfs.Mapping) []byte {
	key := file{m.Dev, m.Inode}
	if id, ok := s.files[key]; ok {
		return id
	}
	f, err := os.Open(fmt.Sprintf("%s/map_files/%x-%x", dir, m.Start, m.End))
	sure := err == nil
	if errors.Is(err, fs.ErrPermission) { // CAP_CHECKPOINT_RESTORE is needed; not blocked by a pipe that may be there now
		f, err = os.OpenFile(filepath.Join(dir, "root", m.Path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !sure && (!ok || st.Ino != m.Inode) {
		return nil
	}
	var id []byte
	if object, err := elfobj.Open(f, info.Size()); err == nil {
		if id = object.BuildID(); len(id) > maxBuildID {
			id = nil
		}
	}
	s.files[key] = id
	return id
}

// clockOffset is how far CLOCK_MONOTONIC is behind the clock of start times, which goes on while the machine sleeps.
func clockOffset() (uint64, error) {
	var boot, monotonic unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot), unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic)); err != nil {
		return 0, fmt.Errorf("read the clocks: %w", err)
	}
	return uint64(boot.Nano() - monotonic.Nano()), nil
}
