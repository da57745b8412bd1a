package cpython

import (
	"encoding/binary"
	"fmt"
)

// File is what recognition needs of an ELF file.
type File interface {
	// Lookup finds a symbol that the file defines, in .dynsym or .symtab.
	Lookup(name string) (address uint64, ok bool)
	// ReadAddress fills b with what the file holds for a virtual address; it fails where the file holds nothing.
	ReadAddress(b []byte, address uint64) error
}

// Interpreter is a CPython that a file holds.
type Interpreter struct {
	// Version is as in "3.12.1" and "3.14.0rc2"; of 3.10 and before, "3.10".
	Version string
	// Runtime is the address of _PyRuntime in the file's own numbering.
	Runtime uint64
	// Layout says how its memory is read.
	Layout Layout
}

// UnsupportedError says that a file holds an interpreter whose memory cannot be read.
type UnsupportedError struct {
	// Version is as in Interpreter.
	Version string
	// Reason is one of the constants: fit for a metric's label.
	Reason string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("python %s not supported: %s", e.Version, e.Reason)
}

// The reasons of an UnsupportedError.
const (
	UnknownVersion = "unknown version"
	PreRelease     = "alpha or beta release" // whose layout changed until the release candidates
	FreeThreaded   = "free-threaded build"
	BadOffsets     = "debug offsets not understood" // contradict the version or themselves
)

// Recognise tells which interpreter a file holds. ok is false for a file without one. An interpreter whose memory cannot
// be read is an *UnsupportedError.
func Recognise(f File) (i Interpreter, ok bool, err error) {
	runtime, ok := f.Lookup("_PyRuntime")
	if !ok {
		return Interpreter{}, false, nil
	}
	version, hex, err := readVersion(f)
	if err != nil {
		return Interpreter{}, false, err
	}
	i = Interpreter{Version: version, Runtime: runtime}
	if minor := int(hex >> 16 & 0xff); hex>>24 != 3 {
		err = &UnsupportedError{version, UnknownVersion}
	} else if level := hex >> 4 & 0xf; level != 0 && level < candidate {
		err = &UnsupportedError{version, PreRelease}
	} else if minor >= firstWithOffsets {
		i.Layout, err = readDebugOffsets(f, version, hex, runtime)
	} else if i.Layout, ok = layouts[minor]; !ok {
		err = &UnsupportedError{version, UnknownVersion}
	}
	if err != nil {
		return Interpreter{}, false, err
	}
	return i, true, nil
}

// readVersion finds a PY_VERSION_HEX: by Py_Version (3.11 and later, Python/getversion.c), and before that by the C API,
// to which each release added functions that extension modules need and no build can strip.
func readVersion(f File) (version string, hex uint32, err error) {
	if at, ok := f.Lookup("Py_Version"); ok {
		var b [4]byte
		if err := f.ReadAddress(b[:], at); err != nil {
			return "", 0, fmt.Errorf("read Py_Version: %w", err)
		}
		hex = binary.LittleEndian.Uint32(b[:])
		return versionString(hex), hex, nil
	}
	for _, added := range []struct {
		function string
		minor    uint32
	}{{"PyIter_Send", 10}, {"PyFrame_GetCode", 9}, {"PyCode_NewWithPosOnlyArgs", 8}} {
		if _, ok := f.Lookup(added.function); ok {
			return fmt.Sprintf("3.%d", added.minor), 3<<24 | added.minor<<16, nil
		}
	}
	return "", 0, &UnsupportedError{"before 3.8", UnknownVersion}
}

// candidate is the release level of release candidates in a PY_VERSION_HEX; alphas and betas are below.
const candidate = 0xc

// versionString shows a PY_VERSION_HEX (Include/patchlevel.h): "3.13.1", "3.14.0rc2".
func versionString(hex uint32) string {
	s := fmt.Sprintf("%d.%d.%d", hex>>24, hex>>16&0xff, hex>>8&0xff)
	if level, ok := map[uint32]string{0xa: "a", 0xb: "b", candidate: "rc"}[hex>>4&0xf]; ok {
		s += fmt.Sprintf("%s%d", level, hex&0xf)
	}
	return s
}
