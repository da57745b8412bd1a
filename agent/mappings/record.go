package mappings

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procfs"
)

// Bits of perf_event_header.misc (include/uapi/linux/perf_event.h).
const (
	miscCommExec    = 1 << 13
	miscMmapBuildID = 1 << 14
)

const (
	headerSize  = 8
	trailerSize = 16 // struct sample_id of PERF_SAMPLE_TID | PERF_SAMPLE_TIME: pid, tid, time
)

// record is one report of the kernel.
type record struct {
	kind     kind
	time     uint64
	pid, tid uint32
	parent   uint32 // of a started thread: the thread group that started it
	event    Event  // of an execution, a mapping and a loss
}

type kind uint8

const (
	ignored kind = iota
	started      // a thread, the first of a process or not
	ended        // a thread
	executed
	mapped
	lost
)

// parse reads one record with its header. ok is false if it is none that the kernel writes.
func parse(b []byte) (r record, ok bool) {
	le := binary.LittleEndian
	if len(b) < headerSize || int(le.Uint16(b[6:])) != len(b) {
		return record{}, false
	}
	if len(b) < headerSize+trailerSize {
		return record{}, true
	}
	misc := le.Uint16(b[4:])
	trailer := b[len(b)-trailerSize:]
	body := b[headerSize : len(b)-trailerSize]
	r.time = le.Uint64(trailer[8:])
	switch le.Uint32(b) {
	case unix.PERF_RECORD_FORK, unix.PERF_RECORD_EXIT: // pid, ppid, tid, ptid, time
		if len(body) < 24 {
			return record{}, false
		}
		r.kind = ended
		if le.Uint32(b) == unix.PERF_RECORD_FORK {
			r.kind = started
		}
		r.pid, r.parent, r.tid = le.Uint32(body), le.Uint32(body[4:]), le.Uint32(body[8:])
	case unix.PERF_RECORD_COMM: // pid, tid, comm
		if len(body) < 8 {
			return record{}, false
		}
		if misc&miscCommExec == 0 {
			return record{}, true // a thread that calls itself something
		}
		r.kind, r.pid, r.tid = executed, le.Uint32(body), le.Uint32(body[4:])
		r.event = Exec{PID: r.pid, Comm: text(body[8:]), Time: r.time}
	case unix.PERF_RECORD_MMAP2:
		m, ok := parseMmap(body, misc)
		if !ok {
			return record{}, false
		}
		m.Time = r.time
		r.kind, r.pid, r.tid, r.event = mapped, m.PID, m.TID, m
	case unix.PERF_RECORD_LOST: // id, number lost
		if len(body) < 16 {
			return record{}, false
		}
		r.kind, r.event = lost, Lost{Count: le.Uint64(body[8:]), Time: r.time}
		return r, true
	}
	if r.pid == 0 || r.pid == ^uint32(0) { // the kernel itself, or outside of this PID namespace
		return record{}, true
	}
	return r, true
}

// parseMmap reads pid, tid, addr, len, pgoff, 24 bytes of the file's identity, prot, flags and the name.
func parseMmap(b []byte, misc uint16) (Mmap, bool) {
	le := binary.LittleEndian
	if len(b) < 64 {
		return Mmap{}, false
	}
	m := Mmap{PID: le.Uint32(b), TID: le.Uint32(b[4:]), Start: le.Uint64(b[8:]), Offset: le.Uint64(b[24:])}
	m.End = m.Start + le.Uint64(b[16:])
	if m.End <= m.Start {
		return Mmap{}, false
	}
	m.Path, m.Deleted = procfs.CutDeleted(text(b[64:]))
	switch m.Path {
	case "//anon":
		m.Path, m.Offset = "", 0
	case "//toolong", "//enomem": // perf_event_mmap_event, kernel/events/core.c
		m.Path = "[unknown]"
	}
	identity := b[32:56]
	if misc&miscMmapBuildID == 0 {
		m.Dev, m.Inode = unix.Mkdev(le.Uint32(identity), le.Uint32(identity[4:])), le.Uint64(identity[8:])
	} else if n := int(identity[0]); n > 0 && n <= maxBuildID {
		m.BuildID = bytes.Clone(identity[4 : 4+n])
	}
	return m, true
}

// text cuts a name at its zero byte; the kernel fills up to a multiple of 8.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
