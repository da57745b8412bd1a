// Package procfs parses what Linux says of a process in /proc: its mappings, its state, its arguments and environment, its
// control groups. It opens nothing.
//
// Names in these files are the process's own to choose: a command name holds spaces and parentheses, a path holds spaces
// and line feeds. Sizes are bounded, and a line that is not understood costs that line only.
package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLine is over what a path of PATH_MAX bytes takes with every byte escaped.
const maxLine = 1 << 15

// deletedSuffix is what the kernel appends to the path of a file that is no longer there (fs/d_path.c).
const deletedSuffix = " (deleted)"

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	// Start and End are addresses of the process; End is the first one behind.
	Start, End uint64
	// Offset is where in the file Start is, in bytes.
	Offset     uint64
	Executable bool
	// Dev, as makedev gives it, and Inode are the file's; both 0 for memory without a file.
	Dev, Inode uint64
	// Path is the file's name as the process sees it, without the mark of a deleted file; a name in brackets for memory
	// of the kernel's making, as [vdso]; or "".
	Path string
	// Deleted tells that nothing is at Path any more, or something else: the file was removed or replaced.
	Deleted bool
}

// Maps reads /proc/PID/maps and gives each mapping to yield until that returns false. Lines that are not understood are
// left out, and the error at the end says how many and the first of them.
func Maps(r io.Reader, yield func(Mapping) bool) error {
	in := bufio.NewReaderSize(r, maxLine)
	unknown, first := 0, ""
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			m, ok := parseMapping(bytes.TrimSuffix(line, []byte("\n")))
			if ok = ok && !errors.Is(err, bufio.ErrBufferFull); ok && !yield(m) {
				return nil
			}
			if !ok {
				unknown++
				if unknown == 1 {
					first = string(line[:min(len(line), 128)])
				}
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line without end
			_, err = in.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read mappings: %w", err)
		}
	}
	if unknown > 0 {
		return fmt.Errorf("read mappings: %d lines not understood, the first is %q", unknown, first)
	}
	return nil
}

// parseMapping reads "start-end perms offset major:minor inode   path" (show_map_vma, fs/proc/task_mmu.c).
func parseMapping(line []byte) (m Mapping, ok bool) {
	var fields [5]string
	rest := line
	for i := range fields {
		field, after, found := bytes.Cut(rest, []byte(" "))
		if !found && i < len(fields)-1 {
			return m, false
		}
		fields[i], rest = string(field), after
	}
	start, end, dash := strings.Cut(fields[0], "-")
	major, minor, colon := strings.Cut(fields[3], ":")
	if !dash || !colon || len(fields[1]) != 4 {
		return m, false
	}
	var errs [6]error
	var dev [2]uint64
	m.Start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.End, errs[1] = strconv.ParseUint(end, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	dev[0], errs[3] = strconv.ParseUint(major, 16, 32)
	dev[1], errs[4] = strconv.ParseUint(minor, 16, 32)
	m.Inode, errs[5] = strconv.ParseUint(fields[4], 10, 64)
	if errors.Join(errs[:]...) != nil || m.Start >= m.End {
		return Mapping{}, false
	}
	m.Executable = fields[1][2] == 'x'
	m.Dev = unix.Mkdev(uint32(dev[0]), uint32(dev[1]))
	// The kernel pads before the path, which itself may begin with anything but a space, and writes a line feed in it as
	// \012; a backslash is written as it is.
	path := strings.ReplaceAll(string(bytes.TrimLeft(rest, " ")), `\012`, "\n")
	m.Path, m.Deleted = CutDeleted(path)
	return m, true
}

// CutDeleted takes the mark of a removed file off a path that the kernel gave.
func CutDeleted(path string) (name string, deleted bool) {
	return strings.CutSuffix(path, deletedSuffix)
}
