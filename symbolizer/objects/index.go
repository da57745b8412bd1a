package objects

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
)

// The index of a build's symbols, a file, little-endian:
//
//	header   magic, source, CRC of the sparse table, symbols, entries, offset of the entries, CRC of all this
//	names    raw, one after the other
//	entries  start, end, name (offset << 16 | length), by start; they do not overlap
//	sparse   the start of every 128th entry
//
// The sparse table is kept in memory, so that an answer costs one read of a block of entries and one of the name, however
// large the file is.
const (
	magic       = "vramsym1"
	indexHeader = 64
	entrySize   = 24
	blockSize   = 128 // entries
	maxEntries  = 64 << 20
	maxNameSize = 1<<16 - 1
)

// errDamaged says that an index file is not what was written. It counts as missing, so that it is uploaded anew.
var errDamaged = errors.New("the index on disk is damaged or of another version")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// index is an open index file. Its lookup may be called from several goroutines.
type index struct {
	file    *os.File
	source  source
	symbols uint64
	entries int
	at      int64    // of the entries
	sparse  []uint64 // start of each block
}

// writeIndex writes the index of symbols, which collect gives with their names to put into the file, to an empty file.
func writeIndex(file *os.File, src source, collect func(put func([]byte) (name, error)) ([]span, error)) (symbols uint64, err error) {
	w := &indexWriter{w: bufio.NewWriterSize(file, 256<<10)}
	w.write(make([]byte, indexHeader))
	spans, err := collect(func(b []byte) (name, error) {
		b = b[:min(len(b), maxNameSize)]
		n := makeName(w.n, len(b))
		w.write(b)
		return n, w.err
	})
	if err != nil {
		return 0, err
	}
	symbols = uint64(len(spans))
	at, entries, sparse := w.n, uint64(0), []byte(nil)
	err = flatten(spans, func(e entry) error {
		if entries%blockSize == 0 {
			sparse = binary.LittleEndian.AppendUint64(sparse, e.start)
		}
		var b [entrySize]byte
		binary.LittleEndian.PutUint64(b[:], e.start)
		binary.LittleEndian.PutUint64(b[8:], e.end)
		binary.LittleEndian.PutUint64(b[16:], uint64(e.name))
		w.write(b[:])
		entries++
		return w.err
	})
	if err != nil {
		return 0, err
	}
	w.write(sparse)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		return 0, w.err
	}
	_, err = file.WriteAt(header(src, sparse, symbols, entries, at), 0)
	return symbols, err
}

func header(src source, sparse []byte, symbols, entries, at uint64) []byte {
	h := make([]byte, indexHeader)
	copy(h, magic)
	le := binary.LittleEndian
	le.PutUint32(h[8:], uint32(src))
	le.PutUint32(h[12:], crc32.Checksum(sparse, castagnoli))
	le.PutUint64(h[16:], symbols)
	le.PutUint64(h[24:], entries)
	le.PutUint64(h[32:], at)
	le.PutUint32(h[60:], crc32.Checksum(h[:60], castagnoli))
	return h
}

// openIndex reads the head of an index. It owns the file from then on, also when it fails.
func openIndex(file *os.File) (_ *index, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	h := make([]byte, indexHeader)
	if _, err := file.ReadAt(h, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	le := binary.LittleEndian
	entries, at := le.Uint64(h[24:]), le.Uint64(h[32:])
	blocks := (entries + blockSize - 1) / blockSize
	if string(h[:8]) != magic || le.Uint32(h[60:]) != crc32.Checksum(h[:60], castagnoli) ||
		entries > maxEntries || at > uint64(info.Size()) || at+entries*entrySize+blocks*8 != uint64(info.Size()) {
		return nil, errDamaged
	}
	sparse := make([]byte, blocks*8)
	if _, err := file.ReadAt(sparse, int64(at+entries*entrySize)); err != nil && blocks > 0 {
		return nil, err
	}
	if crc32.Checksum(sparse, castagnoli) != le.Uint32(h[12:]) {
		return nil, errDamaged
	}
	x := &index{file: file, source: source(le.Uint32(h[8:])), symbols: le.Uint64(h[16:]), entries: int(entries), at: int64(at)}
	for ; len(sparse) >= 8; sparse = sparse[8:] {
		x.sparse = append(x.sparse, le.Uint64(sparse))
	}
	return x, nil
}

// lookup gives the raw name of the symbol that covers an address; empty if none does.
func (x *index) lookup(address uint64) (string, error) {
	block := sort.Search(len(x.sparse), func(i int) bool { return x.sparse[i] > address }) - 1
	if block < 0 {
		return "", nil
	}
	first := block * blockSize
	var buffer [blockSize * entrySize]byte
	entries := buffer[:entrySize*min(blockSize, x.entries-first)]
	if _, err := x.file.ReadAt(entries, x.at+int64(first)*entrySize); err != nil {
		return "", fmt.Errorf("read index: %w", err)
	}
	le := binary.LittleEndian
	i := sort.Search(len(entries)/entrySize, func(i int) bool { return le.Uint64(entries[i*entrySize:]) > address }) - 1
	if i < 0 || address >= le.Uint64(entries[i*entrySize+8:]) {
		return "", nil
	}
	n := name(le.Uint64(entries[i*entrySize+16:]))
	b := make([]byte, n.length())
	if _, err := x.file.ReadAt(b, n.offset()); err != nil {
		return "", fmt.Errorf("read index: %w", err)
	}
	return string(b), nil
}

// indexWriter writes until the first error and knows where it is.
type indexWriter struct {
	w   *bufio.Writer
	n   uint64
	err error
}

func (w *indexWriter) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.n += uint64(len(b))
	}
}
