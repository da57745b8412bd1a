package cpython

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Code is what a traceback needs of a code object.
type Code struct {
	// Filename, QualName and Name are valid UTF-8: what is no character, as of a file name that was no UTF-8, is U+FFFD.
	// QualName is Name before 3.11.
	Filename, QualName, Name string
	FirstLine                int32
	// LineTable is in the format of the version: co_linetable.
	LineTable []byte
}

// Limits on what is read of one code object. The largest line tables are those of generated modules of a million lines.
const (
	maxString    = 64 << 10
	maxLineTable = 4 << 20
)

// ReadCode reads the code object at an address of a process, whose memory is addressed by the reader's offsets, as that of
// /proc/PID/mem is. What is there may be anything: an error says that it is no code object, or no longer.
func ReadCode(memory io.ReaderAt, l Layout, address uint64) (Code, error) {
	c, err := l.readCode(memory, address&^uint64(l.Frame.CodeTag))
	if err != nil {
		return Code{}, fmt.Errorf("code object at %#x: %w", address, err)
	}
	return c, nil
}

// Piece is a copy of a process's memory.
type Piece struct {
	Address uint64
	Data    []byte
}

// DecodeCode does as ReadCode does, with pieces of memory that were copied before. It fails if what it needs was not
// copied whole.
func DecodeCode(pieces []Piece, l Layout, address uint64) (Code, error) {
	return ReadCode(copied(pieces), l, address)
}

func (l Layout) readCode(memory io.ReaderAt, address uint64) (Code, error) {
	head := make([]byte, l.Code.Size)
	if err := readAt(memory, head, address); err != nil {
		return Code{}, err
	}
	pointer := func(at uint16) uint64 { return binary.LittleEndian.Uint64(head[at:]) }
	c := Code{FirstLine: int32(binary.LittleEndian.Uint32(head[l.Code.FirstLine:]))}
	var err error
	if c.Filename, err = l.readString(memory, pointer(l.Code.Filename)); err != nil {
		return Code{}, fmt.Errorf("co_filename: %w", err)
	}
	if c.Name, err = l.readString(memory, pointer(l.Code.Name)); err != nil {
		return Code{}, fmt.Errorf("co_name: %w", err)
	}
	c.QualName = c.Name
	if l.Code.QualName != 0 {
		if c.QualName, err = l.readString(memory, pointer(l.Code.QualName)); err != nil {
			return Code{}, fmt.Errorf("co_qualname: %w", err)
		}
	}
	if c.LineTable, err = l.readBytes(memory, pointer(l.Code.LineTable)); err != nil {
		return Code{}, fmt.Errorf("co_linetable: %w", err)
	}
	return c, nil
}

// readString reads a str object. Its state says how it is stored (PyASCIIObject.state, Include/cpython/unicodeobject.h):
// from the third bit on three bits of bytes per character, one that is set for characters behind the header, one for
// ASCII.
func (l Layout) readString(memory io.ReaderAt, address uint64) (string, error) {
	head := make([]byte, l.String.ASCII)
	if err := readAt(memory, head, address); err != nil {
		return "", err
	}
	length := binary.LittleEndian.Uint64(head[l.String.Length:])
	state := binary.LittleEndian.Uint32(head[l.String.State:])
	width, compact, ascii := uint64(state>>2&7), state>>5&1 == 1, state>>6&1 == 1
	if !compact || width != 1 && width != 2 && width != 4 || ascii && width != 1 {
		return "", fmt.Errorf("no str object: state %#x", state)
	}
	if length > maxString/width {
		return "", fmt.Errorf("str object of %d characters is longer than %d bytes", length, maxString)
	}
	at := l.String.Other
	if ascii {
		at = l.String.ASCII
	}
	b := make([]byte, length*width)
	if err := readAt(memory, b, address+uint64(at)); err != nil {
		return "", err
	}
	return decode(b, int(width)), nil
}

// decode makes UTF-8 of code points of 1 (Latin-1 and ASCII), 2 or 4 bytes each. Surrogates, with which Python keeps the undecodable bytes of
// a file name, and numbers above Unicode become U+FFFD.
func decode(b []byte, width int) string {
	out := make([]byte, 0, len(b))
	for ; len(b) >= width; b = b[width:] {
		var r uint32
		switch width {
		case 1:
			r = uint32(b[0])
		case 2:
			r = uint32(binary.LittleEndian.Uint16(b))
		default:
			r = binary.LittleEndian.Uint32(b)
		}
		if r > utf8.MaxRune {
			r = utf8.RuneError
		}
		out = utf8.AppendRune(out, rune(r))
	}
	return string(out)
}

func (l Layout) readBytes(memory io.ReaderAt, address uint64) ([]byte, error) {
	head := make([]byte, l.Bytes.Data)
	if err := readAt(memory, head, address); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(head[l.Bytes.Length:])
	if length > maxLineTable {
		return nil, fmt.Errorf("bytes object of %d bytes is longer than %d", length, maxLineTable)
	}
	b := make([]byte, length)
	return b, readAt(memory, b, address+uint64(l.Bytes.Data))
}

func readAt(memory io.ReaderAt, b []byte, address uint64) error {
	if int64(address) < 0 {
		return fmt.Errorf("%d bytes at %#x: no address of a process", len(b), address)
	}
	if n, err := memory.ReadAt(b, int64(address)); n < len(b) {
		return fmt.Errorf("%d bytes at %#x: %w", len(b), address, err)
	}
	return nil
}

// copied is memory of which pieces were copied.
type copied []Piece

var errNotCopied = errors.New("not copied")

func (c copied) ReadAt(b []byte, offset int64) (int, error) {
	for _, p := range c {
		at := uint64(offset) - p.Address
		if at <= uint64(len(p.Data)) && uint64(len(b)) <= uint64(len(p.Data))-at {
			return copy(b, p.Data[at:]), nil
		}
	}
	return 0, errNotCopied
}
