package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
)

// A segment is a file: the magic line, then records, each the length of its
// payload and the CRC-32C of it as little-endian uint32, then the payload.
const (
	magic        = "vramprof store 1\n"
	recordHeader = 8
	maxPayload   = maxBody + maxIdentity + maxBody/64 // zstd adds 3 bytes to each 128 KiB that it cannot make smaller
)

type segment struct {
	file           *os.File
	number         uint64
	size           int64
	oldest, newest int64
	// torn means that bytes at the end belong to no record: no more is appended.
	torn bool
}

// record is where a payload lies.
type record struct {
	segment *segment
	offset  int64
	size    int
}

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d.segment", number))
}

func createSegment(dir string, number uint64) (*segment, error) {
	f, err := os.OpenFile(segmentPath(dir, number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	if _, err := f.WriteString(magic); err != nil {
		return nil, fmt.Errorf("create segment: %w", errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	return newSegment(f, number, int64(len(magic))), nil
}

func newSegment(f *os.File, number uint64, size int64) *segment {
	return &segment{file: f, number: number, size: size, oldest: math.MaxInt64, newest: math.MinInt64}
}

// errForeign marks a file that does not begin like a segment.
var errForeign = errors.New("not a segment of this version")

// openSegment reads a segment and visits the identity of each good record.
// Damaged counts records that fail their checksum or do not decode; they are
// passed over. The segment is torn if the records end before the file does.
func openSegment(path string, number uint64, visit func(record, identity)) (seg *segment, damaged int, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("open segment: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("open segment: %w", err)
	}
	seg = newSegment(f, number, info.Size())
	in := bufio.NewReaderSize(f, 1<<20)
	start := make([]byte, min(int64(len(magic)), seg.size))
	if _, err := io.ReadFull(in, start); err != nil {
		return nil, 0, fmt.Errorf("read segment %s: %w", path, err)
	}
	if string(start) != magic[:len(start)] {
		return nil, 0, fmt.Errorf("%s: %w", path, errForeign)
	}
	if len(start) < len(magic) {
		seg.torn = true
		return seg, 0, nil
	}
	var payload []byte
	for at := int64(len(magic)); at < seg.size; {
		var head [recordHeader]byte
		if seg.size-at < recordHeader {
			seg.torn = true
			break
		}
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, 0, fmt.Errorf("read segment %s: %w", path, err)
		}
		at += recordHeader
		size := int64(binary.LittleEndian.Uint32(head[:]))
		if size == 0 || size > maxPayload || size > seg.size-at {
			seg.torn = true
			break
		}
		payload = append(payload[:0], make([]byte, size)...)
		if _, err := io.ReadFull(in, payload); err != nil {
			return nil, 0, fmt.Errorf("read segment %s: %w", path, err)
		}
		if id, err := openPayload(head, payload); err != nil {
			damaged++
		} else {
			seg.holds(id.nanos)
			visit(record{segment: seg, offset: at, size: int(size)}, id)
		}
		at += size
	}
	return seg, damaged, nil
}

func openPayload(head [recordHeader]byte, payload []byte) (identity, error) {
	if checksum(payload) != binary.LittleEndian.Uint32(head[4:]) {
		return identity{}, errRecord
	}
	return decodeIdentity(payload)
}

// write appends whole records. If that fails, nothing of them stays.
func (s *segment) write(records []byte) error {
	_, err := s.file.WriteAt(records, s.size)
	if err != nil {
		if cut := s.file.Truncate(s.size); cut != nil {
			s.torn = true
			err = errors.Join(err, cut)
		}
		return fmt.Errorf("write to %s: %w", s.file.Name(), err)
	}
	s.size += int64(len(records))
	return nil
}

func (s *segment) holds(nanos int64) {
	s.oldest, s.newest = min(s.oldest, nanos), max(s.newest, nanos)
}

func (s *segment) close() error { return errors.Join(s.file.Sync(), s.file.Close()) }

func (s *segment) remove() error { return errors.Join(os.Remove(s.file.Name()), s.file.Close()) }

// read returns the payload after its checksum has been compared again.
func (r record) read() ([]byte, error) {
	b := make([]byte, recordHeader+r.size)
	if _, err := r.segment.file.ReadAt(b, r.offset-recordHeader); err != nil {
		return nil, err
	}
	payload := b[recordHeader:]
	if checksum(payload) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, fmt.Errorf("%w: checksum differs", errRecord)
	}
	return payload, nil
}

// appendRecord puts the header and the payload that fill makes behind dst.
func appendRecord(dst []byte, fill func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(dst)
	out, err := fill(append(dst, make([]byte, recordHeader)...))
	if err != nil {
		return dst, err
	}
	payload := out[start+recordHeader:]
	binary.LittleEndian.PutUint32(out[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(out[start+4:], checksum(payload))
	return out, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
