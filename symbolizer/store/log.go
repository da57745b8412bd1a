package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
)

// Log is a list of records that only grows. Each process that appends writes a segment of its own, so what a crash left
// half written at the end of an older one is in nobody's way, and nothing is ever cut off. Its methods may be called from
// several goroutines.
//
// A segment is a sequence of records: a little-endian uint32 length, the CRC-32C of the record, the record.
type Log struct {
	dir string

	mu       sync.Mutex
	segments []*os.File
	own      bool  // the last segment is ours to append to
	end      int64 // of it
}

// A place is where a record is in its log: the segment's number in the upper half, in the lower the record's offset in it.
func place(segment int, offset int64) uint64 { return uint64(segment)<<32 | uint64(offset) }

const (
	recordHead   = 8
	usualRecord  = 1 << 10  // bytes read at first
	maxRecord    = 16 << 20 // bytes
	maxBatch     = 1 << 30  // bytes of one Append
	maxSegment   = 1 << 30  // bytes after which there is a new one, so that offsets stay under 4 GiB
	segmentNames = ".log"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log opens the log of a name and gives each of its records to visit, oldest first; the slice is valid during the call
// only. It tells how many records were broken and passed over. The caller closes the log.
func (s *Store) Log(name string, visit func(record []byte, place uint64)) (l *Log, broken int, err error) {
	l = &Log{dir: filepath.Join(s.dir, logsDir, name)}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, 0, fmt.Errorf("open log %s: %w", name, full(err))
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open log %s: %w", name, err)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), segmentNames) {
			continue
		}
		f, err := os.Open(filepath.Join(l.dir, e.Name()))
		if err == nil {
			l.segments = append(l.segments, f)
			var n int
			n, err = scan(f, len(l.segments)-1, visit)
			broken += n
		}
		if err != nil {
			return nil, broken, errors.Join(fmt.Errorf("open log %s: %w", name, err), l.Close())
		}
	}
	return l, broken, nil
}

// scan reads a segment. Its end may be torn: what was being written when the machine stopped was never acknowledged.
func scan(f io.Reader, segment int, visit func([]byte, uint64)) (broken int, err error) {
	r := &reader{Reader: bufio.NewReaderSize(f, 1<<20)}
	var head [recordHead]byte
	var record []byte
	for {
		if err := r.full(head[:]); err != nil {
			return broken, torn(err)
		}
		length := binary.LittleEndian.Uint32(head[:])
		if length == 0 || length > maxRecord {
			return broken + 1, nil // where the next record begins is not known
		}
		if uint32(cap(record)) < length {
			record = make([]byte, length)
		}
		record = record[:length]
		at := place(segment, r.at-recordHead)
		if err := r.full(record); err != nil {
			return broken, torn(err)
		}
		if crc32.Checksum(record, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			broken++
			continue
		}
		visit(record, at)
	}
}

// torn takes an end in the midst of a record as the end.
func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// Append stores records, each up to 16 MiB, all or none, and tells their places. When it returns without an error, they are safe
// from a crash of the machine. The error is ErrFull if the disk is full.
func (l *Log) Append(records ...[]byte) ([]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for _, r := range records {
		if size += recordHead + len(r); len(r) == 0 || len(r) > maxRecord || size > maxBatch {
			return nil, fmt.Errorf("append to log: a record of %d bytes, %d in all", len(r), size)
		}
	}
	if err := l.segment(); err != nil {
		return nil, fmt.Errorf("append to log: %w", full(err))
	}
	segment := len(l.segments) - 1
	f := l.segments[segment]
	b := make([]byte, 0, size)
	places := make([]uint64, 0, len(records))
	for _, r := range records {
		places = append(places, place(segment, l.end+int64(len(b))))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(r)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(r, castagnoli))
		b = append(b, r...)
	}
	_, err := f.WriteAt(b, l.end)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		l.own = false // what is at its end is not known: the next one goes elsewhere
		return nil, fmt.Errorf("append to log: %w", full(err))
	}
	l.end += int64(len(b))
	return places, nil
}

// segment sees to it that the last segment is ours and has room.
func (l *Log) segment() error {
	if l.own && l.end < maxSegment {
		return nil
	}
	var f *os.File
	for n := len(l.segments); f == nil; n++ {
		var err error
		f, err = os.OpenFile(filepath.Join(l.dir, fmt.Sprintf("%08d%s", n, segmentNames)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := syncDir(l.dir); err != nil {
		return errors.Join(err, f.Close())
	}
	l.segments, l.own, l.end = append(l.segments, f), true, 0
	return nil
}

// Read gives the record at a place that Append or the visit of Log told.
func (l *Log) Read(at uint64) ([]byte, error) {
	segment, offset := int(at>>32), int64(uint32(at))
	l.mu.Lock()
	if segment >= len(l.segments) {
		l.mu.Unlock()
		return nil, fmt.Errorf("read log: %w", os.ErrClosed)
	}
	f := l.segments[segment]
	l.mu.Unlock()
	b := make([]byte, usualRecord)
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) || n < recordHead {
		return nil, fmt.Errorf("read log: %w", err)
	}
	length := int(binary.LittleEndian.Uint32(b))
	if length > maxRecord {
		return nil, errors.New("read log: no record begins there")
	}
	if n < recordHead+length {
		b = make([]byte, recordHead+length)
		if _, err := f.ReadAt(b, offset); err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
	}
	record := b[recordHead : recordHead+length]
	if crc32.Checksum(record, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, errors.New("read log: the record is damaged on disk")
	}
	return record, nil
}

// Close ends the use of the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range l.segments {
		errs = append(errs, f.Close())
	}
	l.segments = nil
	return errors.Join(errs...)
}
