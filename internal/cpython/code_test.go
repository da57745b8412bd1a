package cpython

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// object lays out a str or bytes object: its length, its state, and the data behind the header.
func object(length uint64, lengthAt uint16, state uint32, stateAt uint16, dataAt uint16, data []byte) []byte {
	b := make([]byte, dataAt)
	binary.LittleEndian.PutUint64(b[lengthAt:], length)
	if stateAt != 0 {
		binary.LittleEndian.PutUint32(b[stateAt:], state)
	}
	return append(b, data...)
}

// pieces lays out a code object with a file name object and a line table object of the test's making.
func pieces(l Layout, filename, table []byte) []Piece {
	const code, filenameAt, nameAt, tableAt = 0x10000, 0x20000, 0x30000, 0x40000
	b := make([]byte, l.Code.Size)
	binary.LittleEndian.PutUint32(b[l.Code.FirstLine:], 7)
	binary.LittleEndian.PutUint64(b[l.Code.Filename:], filenameAt)
	binary.LittleEndian.PutUint64(b[l.Code.Name:], nameAt)
	if l.Code.QualName != 0 {
		binary.LittleEndian.PutUint64(b[l.Code.QualName:], nameAt)
	}
	binary.LittleEndian.PutUint64(b[l.Code.LineTable:], tableAt)
	return []Piece{{code, b}, {filenameAt, filename}, {nameAt, object(1, l.String.Length, stateASCII, l.String.State, l.String.ASCII, []byte("f"))}, {tableAt, table}}
}

const (
	codeAt       = 0x10000
	stateCompact = 1 << 5
	stateASCII   = 1<<6 | stateCompact | 1<<2
	stateLatin1  = stateCompact | 1<<2
	stateUCS2    = stateCompact | 2<<2
	stateUCS4    = stateCompact | 4<<2
)

func TestDecodeCode(t *testing.T) {
	text := func(l Layout, state uint32, length int, data string) []byte {
		at := l.String.Other
		if state == stateASCII {
			at = l.String.ASCII
		}
		return object(uint64(length), l.String.Length, state, l.String.State, at, []byte(data))
	}
	bytes := func(l Layout, length int, data string) []byte {
		return object(uint64(length), l.Bytes.Length, 0, 0, l.Bytes.Data, []byte(data))
	}
	for _, minor := range []int{10, 12} {
		l := layouts[minor]
		table := bytes(l, 2, "\x80\x01")
		for _, test := range []struct {
			name, want, err string
			filename, table []byte
		}{
			{name: "ASCII", filename: text(l, stateASCII, 4, "a.py"), want: "a.py"},
			{name: "empty", filename: text(l, stateASCII, 0, ""), want: ""},
			{name: "Latin-1", filename: text(l, stateLatin1, 2, "\xe9\xff"), want: "éÿ"},
			{name: "two bytes", filename: text(l, stateUCS2, 2, "\xb9\x65\x41\x00"), want: "方A"},
			{name: "four bytes", filename: text(l, stateUCS4, 2, "\x80\x03\x01\x00\x41\x00\x00\x00"), want: "𐎀A"},
			{name: "lone surrogate", filename: text(l, stateUCS2, 2, "\xff\xdc\x41\x00"), want: "\ufffdA"},
			{name: "above Unicode", filename: text(l, stateUCS4, 2, "\x00\x00\x11\x00\xff\xff\xff\xff"), want: "\ufffd\ufffd"},
			{name: "cut", filename: text(l, stateASCII, 5, "a.py"), err: "co_filename"},
			{name: "header cut", filename: make([]byte, 20), err: "co_filename"},
			{name: "too long", filename: text(l, stateUCS4, maxString/4+1, strings.Repeat("a", maxString+4)), err: "longer than"},
			{name: "length of 64 bits", filename: text(l, stateUCS4, -1, "a"), err: "longer than"},
			{name: "no str object", filename: text(l, 0, 1, "a"), err: "no str object"},
			{name: "not compact", filename: text(l, 1<<2, 1, "a"), err: "no str object"},
			{name: "three bytes per character", filename: text(l, stateCompact|3<<2, 1, "abc"), err: "no str object"},
			{name: "line table cut", filename: text(l, stateASCII, 4, "a.py"), table: bytes(l, 3, "ab"), err: "co_linetable"},
			{name: "line table too long", filename: text(l, stateASCII, 4, "a.py"), table: bytes(l, maxLineTable+1, ""), err: "longer than"},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.table == nil {
					test.table = table
				}
				c, err := DecodeCode(pieces(l, test.filename, test.table), l, codeAt)
				if test.err != "" {
					if err == nil || !strings.Contains(err.Error(), test.err) {
						t.Errorf("error %v, want %s", err, test.err)
					}
					return
				}
				if err != nil || c.Filename != test.want || c.Name != "f" || c.QualName != "f" || c.FirstLine != 7 || !slices.Equal(c.LineTable, []byte{0x80, 1}) {
					t.Errorf("%+v %v, want %q", c, err, test.want)
				}
			})
		}
	}
}

func TestDecodeCodeWithoutItsPieces(t *testing.T) {
	l := layouts[11]
	all := pieces(l, object(1, l.String.Length, stateASCII, l.String.State, l.String.ASCII, []byte("f")), object(0, l.Bytes.Length, 0, 0, l.Bytes.Data, nil))
	if _, err := DecodeCode(all, l, codeAt); err != nil {
		t.Fatal(err)
	}
	for n := range all {
		if _, err := DecodeCode(slices.Delete(slices.Clone(all), n, n+1), l, codeAt); err == nil {
			t.Errorf("decoded without piece %d", n)
		}
	}
	if _, err := DecodeCode(all, l, 1<<63); err == nil {
		t.Error("decoded at an address that no process has")
	}
}

func FuzzDecodeCode(f *testing.F) {
	for minor, l := range layouts {
		f.Add(uint8(minor), object(2, l.String.Length, stateUCS2, l.String.State, l.String.Other, []byte("abcd")), object(2, l.Bytes.Length, 0, 0, l.Bytes.Data, []byte("ab")))
	}
	f.Fuzz(func(t *testing.T, minor uint8, filename, table []byte) {
		l, ok := layouts[int(minor)]
		if !ok {
			return
		}
		c, err := DecodeCode(pieces(l, filename, table), l, codeAt)
		if err == nil && (len(c.Filename) > 3*len(filename) || len(c.LineTable) > len(table) || strings.ToValidUTF8(c.Filename, "") != c.Filename) {
			t.Errorf("%+v of %d and %d bytes", c, len(filename), len(table))
		}
	})
}
