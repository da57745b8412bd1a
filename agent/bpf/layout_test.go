package bpf

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/vramprof/vramprof/internal/ehframe"
)

// TestSizesAreTheHeaders compares the numbers that Go has of its own, and those that come in through generated arrays,
// with the text of the header.
func TestSizesAreTheHeaders(t *testing.T) {
	header, err := os.ReadFile("c/layout.h")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+) (\d+)`).FindAllSubmatch(header, -1) {
		if defined[string(m[1])], err = strconv.Atoi(string(m[2])); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		here int
	}{
		{"MAX_NATIVE", len(vramprofStackRecord{}.Frames)},
		{"MAX_PYTHON", len(vramprofPythonRecord{}.Frames)},
		{"ROW_CHUNK", rowChunk},
		{"INDEX_CHUNK", indexChunk},
		{"SPACE_CHUNK", spaceChunk},
		{"SPACE_CHUNKS", spaceChunks},
		{"SPACE_CHUNKS", len(vramprofImage{}.First)},
		{"COPY_CHUNK", len(vramprofCopyRecord{}.Bytes)},
		{"CODE_HEAD", len(vramprofCodeRecord{}.Head)},
		{"CODE_STRING", int(codeString)},
		{"CODE_TABLE", len(vramprofCodeRecord{}.Table)},
		{"CODE_PIECES", len(vramprofCodeRecord{}.Address)},
		{"OVERFLOW_ACCOUNT", OverflowAccount},
		{"CLASSES", len(vramprofAccount{}.Lost)},
		{"CLASSES", len(Account{}.Lost)},
	} {
		if n, ok := defined[test.name]; !ok || n != test.here {
			t.Errorf("%s is %d in c/layout.h and %d here", test.name, n, test.here)
		}
	}
	// struct row: u32, u16, s16; struct mapping: three u64, two u32
	if size := int(unsafe.Sizeof(ehframe.Row{})); size != rowSize || rowSize != 8 || mappingSize != 32 {
		t.Errorf("a row has %d bytes and should have %d; a mapping %d", size, rowSize, mappingSize)
	}
}

// TestMapsHaveTheSizes looks at what was compiled, which the header's text may have left behind.
func TestMapsHaveTheSizes(t *testing.T) {
	spec, err := loadVramprof()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		size int
	}{
		{"row_tables", rowChunk * rowSize}, {"row_indexes", indexChunk * 4}, {"spaces", spaceChunk * mappingSize},
	} {
		if inner := spec.Maps[test.name].InnerMap; int(inner.ValueSize) != test.size {
			t.Errorf("an element of %s has %d bytes and is written with %d", test.name, inner.ValueSize, test.size)
		}
	}
	for i, name := range statisticNames {
		if name == "" {
			t.Errorf("statistic %d has no name", i)
		}
	}
	if n := int(spec.Maps["statistics"].MaxEntries); n != len(statisticNames) {
		t.Errorf("%d statistics, %d names", n, len(statisticNames))
	}
}
