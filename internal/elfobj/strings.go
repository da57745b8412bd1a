package elfobj

import (
	"bytes"
	"fmt"
)

const (
	stringPage  = 16 << 10
	stringPages = 128 // 2 MiB, which holds a usual table whole
	// maxName is where a symbol's name is cut: four times the longest that real C++ libraries have.
	maxName = 64 << 10
)

// stringTable reads names out of a string table by page, so that a table of a gigabyte costs two megabytes. Linkers
// write names about in the order of their symbols, so a page serves many.
type stringTable struct {
	file    *File
	section *Section
	pages   [stringPages]struct {
		number uint64 // plus one; 0 for none
		data   []byte
	}
	long []byte
}

// name gives the zero-terminated string at an offset, cut at maxName; empty if the table has none there. It is valid until
// the next call.
func (t *stringTable) name(at uint64) ([]byte, error) {
	if at >= t.section.Size {
		return nil, nil
	}
	page, err := t.page(at / stringPage)
	if err != nil {
		return nil, err
	}
	rest := page[min(uint64(len(page)), at%stringPage):]
	if end := bytes.IndexByte(rest, 0); end >= 0 {
		return rest[:end], nil
	}
	t.long = append(t.long[:0], rest...)
	for number := at/stringPage + 1; number*stringPage < t.section.Size && len(t.long) < maxName; number++ {
		if page, err = t.page(number); err != nil {
			return nil, err
		}
		end := bytes.IndexByte(page, 0)
		if end >= 0 {
			t.long = append(t.long, page[:end]...)
			break
		}
		t.long = append(t.long, page...)
	}
	return t.long[:min(len(t.long), maxName)], nil
}

func (t *stringTable) page(number uint64) ([]byte, error) {
	slot := &t.pages[number%stringPages]
	if slot.number == number+1 {
		return slot.data, nil
	}
	from := number * stringPage
	size := min(stringPage, t.section.Size-from)
	if uint64(cap(slot.data)) < size {
		slot.data = make([]byte, size)
	}
	slot.number, slot.data = 0, slot.data[:size]
	if err := t.file.readAt(slot.data, t.section.Offset+from); err != nil {
		return nil, fmt.Errorf("read section %s: %w", t.section.Name, err)
	}
	slot.number = number + 1
	return slot.data, nil
}
