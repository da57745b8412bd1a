package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/ehframe"
)

const (
	rowChunk   = 512  // ROW_CHUNK
	indexChunk = 1024 // INDEX_CHUNK
	rowSize    = 8
)

var (
	// ErrNoRoom says that a map has no free place: more files or processes at once than it was made for.
	ErrNoRoom = errors.New("no room in the kernel's table")
	// ErrTooManyRows says that a file has more than 33,554,432 unwind rows.
	ErrTooManyRows = errors.New("too many unwind rows")
)

// Rows are one file's unwind rows in the kernel. The zero value means that a file has none.
type Rows struct {
	id, indexes uint32
	// Bytes is the kernel memory that they take.
	Bytes int
}

// LoadRows copies rows, sorted by address, into kernel memory, 8 bytes a row.
//
// The kernel lets a change of a map of maps return only when no program uses the old state any more (synchronize_rcu in
// maybe_wait_bpf_programs, kernel/bpf/syscall.c): ten milliseconds and more, which calls at the same time share.
func (k *Kernel) LoadRows(rows []ehframe.Row) (Rows, error) {
	chunks := (len(rows) + rowChunk - 1) / rowChunk
	indexes := (chunks + indexChunk - 1) / indexChunk
	if chunks == 0 {
		return Rows{}, nil
	}
	if indexes > 64 { // the bound of the loop in find_row, c/native.h
		return Rows{}, fmt.Errorf("%d rows: %w", len(rows), ErrTooManyRows)
	}
	padded := make([]ehframe.Row, chunks*rowChunk)
	copy(padded, rows)
	for i := len(rows); i < len(padded); i++ {
		padded[i] = ehframe.Row{PC: ^uint32(0), CFA: rows[len(rows)-1].CFA, BP: rows[len(rows)-1].BP}
	}
	firsts := make([]uint32, indexes*indexChunk)
	for i := range firsts {
		firsts[i] = ^uint32(0)
		if i < chunks {
			firsts[i] = padded[i*rowChunk].PC
		}
	}
	table, err := innerArray(chunks, rowChunk*rowSize, bytesOf(padded))
	if err != nil {
		return Rows{}, fmt.Errorf("unwind rows: %w", err)
	}
	defer table.Close() // the outer map holds it
	index, err := innerArray(indexes, indexChunk*4, bytesOf(firsts))
	if err != nil {
		return Rows{}, fmt.Errorf("index of unwind rows: %w", err)
	}
	defer index.Close()

	k.mu.Lock()
	id, ok := k.tables.take()
	k.mu.Unlock()
	if !ok {
		return Rows{}, fmt.Errorf("unwind rows of more than %d files: %w", k.tables.max, ErrNoRoom)
	}
	if err := errors.Join(k.objects.RowTables.Put(id, table), k.objects.RowIndexes.Put(id, index)); err != nil {
		k.mu.Lock()
		k.tables.put(id)
		k.mu.Unlock()
		return Rows{}, fmt.Errorf("publish unwind rows: %w", err)
	}
	return Rows{id: id, indexes: uint32(indexes), Bytes: chunks*rowChunk*rowSize + indexes*indexChunk*4}, nil
}

// innerArray makes an array of n elements of size bytes that holds data.
func innerArray(n, size int, data []byte) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: uint32(n), Flags: unix.BPF_F_INNER_MAP})
	if err != nil {
		return nil, fmt.Errorf("make an array of %d times %d bytes: %w", n, size, err)
	}
	for i := range n {
		if err := m.Put(uint32(i), data[i*size:(i+1)*size]); err != nil {
			m.Close()
			return nil, fmt.Errorf("fill element %d of %d: %w", i, n, err)
		}
	}
	return m, nil
}

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
