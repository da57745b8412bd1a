package mappings

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	perfBitBuildID = 1 << 34 // PerfBit of build_id, Linux 5.12
	ringBytes      = 256 << 10
)

// ring is the perf event of one CPU and the memory into which the kernel writes its records.
type ring struct {
	fd     int
	memory []byte
	page   *unix.PerfEventMmapPage
	data   []byte
	whole  []byte // a record that wraps around the end
}

func openRing(cpu int) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | perfBitBuildID | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask |
			unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark,
		Clockid: unix.CLOCK_MONOTONIC,
		Wakeup:  1, // tell at once
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("perf_event_open: %w", err)
	}
	head := unix.Getpagesize()
	memory, err := unix.Mmap(fd, 0, head+ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map a ring of %d bytes: %w", ringBytes, err)
	}
	return &ring{fd: fd, memory: memory, page: (*unix.PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(memory))), data: memory[head:]}, nil
}

func (r *ring) close() error {
	if err := unix.Munmap(r.memory); err != nil {
		return err
	}
	return unix.Close(r.fd)
}

// drain appends what the kernel has written and gives the room back to it.
func (r *ring) drain(to []record) []record {
	head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
	for tail < head {
		b := r.at(tail, min(head-tail, headerSize))
		size := uint64(0)
		if len(b) == headerSize {
			size = uint64(binary.LittleEndian.Uint16(b[6:]))
		}
		if size < headerSize || size > head-tail {
			// Where the next record begins cannot be told. The kernel writes no such thing.
			to = append(to, record{kind: lost, event: Lost{Count: 1}})
			break
		}
		rec, ok := parse(r.at(tail, size))
		switch {
		case !ok:
			to = append(to, record{kind: lost, time: rec.time, event: Lost{Count: 1, Time: rec.time}})
		case rec.kind != ignored:
			to = append(to, rec)
		}
		tail += size
	}
	atomic.StoreUint64(&r.page.Data_tail, head)
	return to
}

// at gives n bytes from a position on. They are valid until the next call.
func (r *ring) at(position, n uint64) []byte {
	size := uint64(len(r.data))
	from := position % size
	if from+n <= size {
		return r.data[from : from+n]
	}
	r.whole = append(append(r.whole[:0], r.data[from:]...), r.data[:from+n-size]...)
	return r.whole
}
