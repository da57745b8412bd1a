package cpython

import (
	"encoding/binary"
	"errors"
	"maps"
	"testing"
)

// image is a File of symbols and of bytes from address 0x1000 on.
type image struct {
	symbols map[string]uint64
	bytes   []byte
}

const imageStart = 0x1000

func (f image) Lookup(name string) (address uint64, ok bool) {
	address, ok = f.symbols[name]
	return address, ok
}

func (f image) ReadAddress(b []byte, address uint64) error {
	at := address - imageStart
	if at > uint64(len(f.bytes)) || uint64(len(b)) > uint64(len(f.bytes))-at {
		return errors.New("not in the file")
	}
	copy(b, f.bytes[at:])
	return nil
}

// offsets313 are the words of 3.13.1 (python-build-standalone), up to where they are read.
var offsets313 = []uint64{
	binary.LittleEndian.Uint64([]byte("xdebugpy")), 0x030d01f0, 0,
	283376, 608, 632, // runtime_state
	194976, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768, 7760, // interpreter_state
	304, 0, 8, 16, 72, 152, 160, 232, 32, // thread_state
	80, 8, 0, 56, 72, 70, // interpreter_frame
	208, 112, 120, 128, 136, 68, 52, 96, 104, 200, // code_object
	16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24, // pyobject to long_object
	40, 16, 32, // bytes_object
	64, 32, 16, 40, // unicode_object
	240, 200, // gc
}

// fake is a file with Py_Version and debug offsets, some of them changed.
func fake(version uint32, changed map[int]uint64) image {
	words := map[int]uint64{}
	for i, w := range offsets313 {
		words[i] = w
	}
	words[1] = uint64(version)
	maps.Copy(words, changed)
	b := make([]byte, 0, 1024)
	for i := range len(words) {
		b = binary.LittleEndian.AppendUint64(b, words[i])
	}
	b = binary.LittleEndian.AppendUint32(b, version)
	return image{map[string]uint64{"_PyRuntime": imageStart, "Py_Version": imageStart + uint64(len(words))*8}, b}
}

func TestRecognise(t *testing.T) {
	old := func(symbols ...string) image {
		f := image{symbols: map[string]uint64{"_PyRuntime": imageStart}}
		for _, s := range symbols {
			f.symbols[s] = imageStart
		}
		return f
	}
	for _, test := range []struct {
		name, version, err string
		file               image
	}{
		{name: "no interpreter", file: image{}},
		{name: "an extension module's imports", file: image{symbols: map[string]uint64{"Py_Version": imageStart}}},
		{name: "3.10 by its C API", file: old("PyIter_Send", "PyFrame_GetCode", "PyCode_NewWithPosOnlyArgs"), version: "3.10"},
		{name: "3.9", file: old("PyFrame_GetCode", "PyCode_NewWithPosOnlyArgs"), err: "python 3.9 not supported: unknown version"},
		{name: "3.8", file: old("PyCode_NewWithPosOnlyArgs"), err: "python 3.8 not supported: unknown version"},
		{name: "3.7", file: old(), err: "python before 3.8 not supported: unknown version"},
		{name: "3.11", file: fake(0x030b02f0, nil), version: "3.11.2"},
		{name: "3.12, release candidate", file: fake(0x030c00c3, nil), version: "3.12.0rc3"},
		{name: "3.13", file: fake(0x030d01f0, nil), version: "3.13.1"},
		{name: "B22: a minor version not known yet", file: fake(0x036300f0, nil), err: "python 3.99.0 not supported: unknown version"},
		{name: "B22: a major version not known yet", file: fake(0x040b00f0, nil), err: "python 4.11.0 not supported: unknown version"},
		{name: "an alpha", file: fake(0x030d00a6, nil), err: "python 3.13.0a6 not supported: alpha or beta release"},
		{name: "B26: free-threaded", file: fake(0x030d01f0, map[int]uint64{2: 1}), err: "python 3.13.1 not supported: free-threaded build"},
		{name: "no cookie", file: fake(0x030d01f0, map[int]uint64{0: 0}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "offsets of another version", file: fake(0x030d01f0, map[int]uint64{1: 0x030e00f0}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "frame too large to copy", file: fake(0x030d01f0, map[int]uint64{32: 136}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "owner outside the frame", file: fake(0x030d01f0, map[int]uint64{33: 72}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "field not aligned", file: fake(0x030d01f0, map[int]uint64{35: 113}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "an offset that wraps", file: fake(0x030d01f0, map[int]uint64{38: 1<<64 - 8}), err: "python 3.13.1 not supported: debug offsets not understood"},
		{name: "Py_Version without bytes", file: old("Py_Version"), err: "read Py_Version: not in the file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			i, ok, err := Recognise(test.file)
			if ok != (test.version != "") || i.Version != test.version {
				t.Errorf("%q %t, want %q", i.Version, ok, test.version)
			}
			if err == nil && test.err != "" || err != nil && err.Error() != test.err {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

// Whatever words a file has, a layout made of them must be safe to use: all fields inside what is copied.
func FuzzDebugOffsets(f *testing.F) {
	seed := make([]byte, 0, 1024)
	for _, w := range offsets313 {
		seed = binary.LittleEndian.AppendUint64(seed, w)
	}
	f.Add(uint32(0x030d01f0), seed)
	f.Add(uint32(0x030e06f0), seed)
	f.Fuzz(func(t *testing.T, version uint32, words []byte) {
		file := image{map[string]uint64{"_PyRuntime": imageStart, "Py_Version": imageStart + uint64(len(words))}, binary.LittleEndian.AppendUint32(words, version)}
		i, ok, _ := Recognise(file)
		if !ok {
			return
		}
		l := i.Layout
		for what, fits := range map[string]bool{
			"frame":       l.Frame.Size <= MaxFrame,
			"frame field": max(l.Frame.Previous, l.Frame.Code, l.Frame.Instruction)+uint16(l.Frame.InstructionSize) <= l.Frame.Size && l.Frame.EntryAt < l.Frame.Size,
			"code":        l.Code.Size <= MaxCode,
			"code field":  max(l.Code.Filename, l.Code.Name, l.Code.QualName, l.Code.LineTable)+8 <= l.Code.Size,
			"string":      l.String.Length+8 <= l.String.ASCII && l.String.State+4 <= l.String.ASCII && l.String.ASCII < l.String.Other,
			"bytes":       l.Bytes.Length+8 <= l.Bytes.Data,
		} {
			if !fits {
				t.Errorf("%s: %+v", what, l)
			}
		}
		_, _ = ReadCode(copied{{Address: 0, Data: words}}, l, 0)
	})
}
