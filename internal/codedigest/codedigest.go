// Package codedigest names a CPython code object by what a traceback needs of it, so that agents and the symbolizer, who
// must agree on the name to the byte, have it from one place.
package codedigest

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Size is the length of a digest in bytes.
const Size = sha256.Size

// Digest is the digest of vramprof.symbolizer.v1.PythonCode: the SHA-256 of Encode.
func Digest(minor int, filename, qualname, name string, firstLine int32, lineTable []byte) [Size]byte {
	return sha256.Sum256(Encode(minor, filename, qualname, name, firstLine, lineTable))
}

// Encode is what the digest is of: the six fields, in this order, each with its length in bytes before it as a
// little-endian uint32, the two numbers in ASCII decimal.
func Encode(minor int, filename, qualname, name string, firstLine int32, lineTable []byte) []byte {
	b := make([]byte, 0, 6*4+2*11+len(filename)+len(qualname)+len(name)+len(lineTable))
	b = field(b, strconv.Itoa(minor))
	b = field(b, filename)
	b = field(b, qualname)
	b = field(b, name)
	b = field(b, strconv.FormatInt(int64(firstLine), 10))
	return field(b, lineTable)
}

func field[T string | []byte](b []byte, value T) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}
