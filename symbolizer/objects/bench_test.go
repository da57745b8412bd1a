package objects_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/elfobj"
	"github.com/vramprof/vramprof/symbolizer/objects"
)

const (
	syntheticBase = 0x1000
	syntheticSize = 256 // bytes of each function
)

// synthetic makes a reduced file of n functions with C++ names as PyTorch's are, 256 bytes each.
func synthetic(n int) []byte {
	le := binary.LittleEndian
	names, symbols := []byte{0}, make([]byte, 24)
	for i := range n {
		name := fmt.Sprintf("_ZN2at6native12_GLOBAL__N_1%d_kernel_impl_%dILb1EN3c107complexIfEEEEvRKNS_6TensorES7_NS2_6ScalarERSt6vectorIlSaIlEE", len(strconv.Itoa(i))+13, i)
		s := le.AppendUint32(nil, uint32(len(names)))
		s = append(s, 0x12, 0) // STB_GLOBAL, STT_FUNC
		s = le.AppendUint16(s, 1)
		s = le.AppendUint64(s, uint64(syntheticBase+i*syntheticSize))
		s = le.AppendUint64(s, syntheticSize-16)
		symbols = append(symbols, s...)
		names = append(append(names, name...), 0)
	}
	note := []byte("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00" + "\x01\x02\x03\x04")
	file := make([]byte, 64)
	copy(file, "\x7fELF\x02\x01\x01")
	le.PutUint16(file[16:], 3)  // ET_DYN
	le.PutUint16(file[18:], 62) // EM_X86_64
	le.PutUint16(file[52:], 64)
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[58:], 64)
	le.PutUint16(file[60:], 5)
	headers := make([]byte, 64)
	section := func(kind uint32, flags, address uint64, data []byte, size uint64, link uint32) {
		h := le.AppendUint32(nil, 0)
		h = le.AppendUint32(h, kind)
		for _, v := range []uint64{flags, address, uint64(len(file)), size} {
			h = le.AppendUint64(h, v)
		}
		h = le.AppendUint64(h, uint64(link))
		h = le.AppendUint64(h, 8)
		h = le.AppendUint64(h, 24)
		headers = append(headers, h...)
		file = append(file, data...)
	}
	section(8, 6, syntheticBase, nil, uint64(n*syntheticSize), 0) // code, SHT_NOBITS
	section(7, 2, 0, note, uint64(len(note)), 0)
	section(2, 0, 0, symbols, uint64(len(symbols)), 4)
	section(3, 0, 0, names, uint64(len(names)), 0)
	le.PutUint64(file[40:], uint64(len(file)))
	return append(file, headers...)
}

// resident gives the process's memory in bytes, now ("VmRSS") or at its highest ("VmHWM").
func resident(b testing.TB, field string) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		var kilobytes int
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	b.Fatal("no " + field)
	return 0
}

// resetPeak makes VmHWM what is resident now (proc(5), clear_refs).
func resetPeak(b testing.TB) {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSymbolize measures objects of libpython's size and of libtorch's: an index built, an address that was asked
// before, and one that was not.
func BenchmarkSymbolize(b *testing.B) {
	for _, functions := range []int{12_000, 500_000} {
		path := b.TempDir() + "/object"
		if err := os.WriteFile(path, synthetic(functions), 0o600); err != nil {
			b.Fatal(err)
		}
		r, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		info, err := r.Stat()
		if err != nil {
			b.Fatal(err)
		}
		const id = "gnu:01020304"
		add := func(b *testing.B, o *objects.Objects) {
			if n, stored, err := o.Add(id, r, info.Size()); n != uint64(functions) || !stored || err != nil {
				b.Fatal(n, stored, err)
			}
		}
		b.Run(fmt.Sprintf("functions=%d/index", functions), func(b *testing.B) {
			resetPeak(b)
			for b.Loop() {
				add(b, open(b, b.TempDir(), time.Now))
			}
			b.ReportMetric(float64(info.Size()), "file-bytes")
			b.ReportMetric(float64(resident(b, "VmHWM")), "peak-rss-bytes")
		})
		o := open(b, b.TempDir(), time.Now)
		add(b, o)
		ask := func(b *testing.B, places int) {
			random := rand.New(rand.NewPCG(5, 5))
			addresses := make([]uint64, places)
			for i := range addresses {
				addresses[i] = syntheticBase + random.Uint64N(uint64(functions))*syntheticSize + 7
			}
			for b.Loop() {
				err := o.Symbolize(id, addresses, func(_ int, lines []*symbolizerv1.Line) {
					if len(lines) != 1 {
						b.Fatal("no name")
					}
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(places), "ns/location")
			b.ReportMetric(float64(resident(b, "VmRSS")), "rss-bytes")
		}
		b.Run(fmt.Sprintf("functions=%d/asked-before", functions), func(b *testing.B) { ask(b, 500) })
		b.Run(fmt.Sprintf("functions=%d/new", functions), func(b *testing.B) { ask(b, 10_000) })
	}
}

// B16: a large object costs its symbols' addresses in memory while it is indexed, and its names never.
func TestB16LargeObject(t *testing.T) {
	file := synthetic(200_000)
	o := open(t, t.TempDir(), time.Now)
	resetPeak(t)
	before := resident(t, "VmRSS")
	const id = "gnu:01020304"
	if n, _, err := o.Add(id, bytes.NewReader(file), int64(len(file))); n != 200_000 || err != nil {
		t.Fatal(n, err)
	}
	if used := resident(t, "VmHWM") - before; used > 64<<20 {
		t.Errorf("%d bytes of memory for a file of %d", used, len(file))
	}
	f, err := elfobj.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil || len(f.BuildID()) != 4 {
		t.Fatal(err)
	}
	at := uint64(syntheticBase + 123_456*syntheticSize)
	got := names(t, o, id, at, at+syntheticSize-17, at+syntheticSize-16)
	if !strings.Contains(got[0], "_kernel_impl_123456I") || got[1] != got[0] || got[2] != "" {
		t.Errorf("names %q", got)
	}
}
