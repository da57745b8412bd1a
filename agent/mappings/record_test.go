package mappings

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// raw writes a record as the kernel does: header, body, and pid, tid and time behind it.
func raw(kind uint32, misc uint16, body ...any) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint16(b, misc)
	b = le.AppendUint16(b, 0)
	for _, f := range body {
		switch f := f.(type) {
		case int:
			b = le.AppendUint32(b, uint32(f))
		case uint64:
			b = le.AppendUint64(b, f)
		case []byte:
			b = append(b, f...)
		case string:
			b = append(b, f...)
			b = append(b, make([]byte, 8-len(f)%8)...)
		}
	}
	b = le.AppendUint32(b, 9)
	b = le.AppendUint32(b, 9)
	b = le.AppendUint64(b, 777)
	le.PutUint16(b[6:], uint16(len(b)))
	return b
}

func TestParse(t *testing.T) {
	id := []byte("\x14\x00\x00\x00ABCDEFGHIJKLMNOPQRST")
	inode := []byte("\x03\x01\x00\x00\xff\xff\x0f\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	long := "/" + strings.Repeat("d/", 2000)
	m := Mmap{PID: 7, TID: 8, Start: 0x1000, End: 0x3000, Offset: 0x2000, Time: 777}
	mmap := func(misc uint16, identity []byte, name string) []byte {
		return raw(unix.PERF_RECORD_MMAP2, misc, 7, 8, uint64(0x1000), uint64(0x2000), uint64(0x2000), identity, 5, 2, name)
	}
	with := func(change func(*Mmap)) record {
		m := m
		change(&m)
		return record{kind: mapped, time: 777, pid: 7, tid: 8, event: m}
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		want  record
	}{
		{"mapping with build ID", mmap(miscMmapBuildID, id, "/lib/x.so"), with(func(m *Mmap) { m.Path, m.BuildID = "/lib/x.so", id[4:] })},
		{"mapping with inode", mmap(0, inode, "/lib/x y.so (deleted)"), with(func(m *Mmap) {
			m.Path, m.Deleted, m.Dev, m.Inode = "/lib/x y.so", true, unix.Mkdev(0x103, 0xfffff), 7
		})},
		{"build ID of no bytes", mmap(miscMmapBuildID, make([]byte, 24), "/x"), with(func(m *Mmap) { m.Path = "/x" })},
		{"build ID that is too long", mmap(miscMmapBuildID, append([]byte{21}, id[1:]...), "/x"), with(func(m *Mmap) { m.Path = "/x" })},
		{"path of 4,000 bytes", mmap(miscMmapBuildID, id, long), with(func(m *Mmap) { m.Path, m.BuildID = long, id[4:] })},
		{"anonymous", mmap(0, make([]byte, 24), "//anon"), with(func(m *Mmap) { m.Offset = 0 })},
		{"vdso", mmap(0, make([]byte, 24), "[vdso]"), with(func(m *Mmap) { m.Path = "[vdso]" })},
		{"path that the kernel gave up on", mmap(0, make([]byte, 24), "//toolong"), with(func(m *Mmap) { m.Path = "[unknown]" })},
		{"exec", raw(unix.PERF_RECORD_COMM, miscCommExec, 7, 7, "a b"), record{kind: executed, time: 777, pid: 7, tid: 7, event: Exec{PID: 7, Comm: "a b", Time: 777}}},
		{"new name of a thread", raw(unix.PERF_RECORD_COMM, 0, 7, 8, "a b"), record{}},
		{"fork", raw(unix.PERF_RECORD_FORK, 0, 7, 3, 8, 4, uint64(5)), record{kind: started, time: 777, pid: 7, tid: 8, parent: 3}},
		{"exit", raw(unix.PERF_RECORD_EXIT, 0, 7, 3, 8, 4, uint64(5)), record{kind: ended, time: 777, pid: 7, tid: 8, parent: 3}},
		{"exit outside of the PID namespace", raw(unix.PERF_RECORD_EXIT, 0, 0, 0, 0, 0, uint64(5)), record{}},
		{"exit of what is gone already", raw(unix.PERF_RECORD_EXIT, 0, -1, 0, -1, 0, uint64(5)), record{}},
		{"loss", raw(unix.PERF_RECORD_LOST, 0, uint64(1), uint64(42)), record{kind: lost, time: 777, event: Lost{42, 777}}},
		{"of no interest", raw(unix.PERF_RECORD_THROTTLE, 0, uint64(1), uint64(42), uint64(3)), record{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := parse(c.bytes)
			if c.want.kind == ignored {
				got = record{kind: got.kind}
			}
			if !ok || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, c.want)
			}
		})
	}
	for _, c := range [][]byte{
		nil, make([]byte, 8), raw(unix.PERF_RECORD_FORK, 0, 7), raw(unix.PERF_RECORD_COMM, 0, 7), raw(unix.PERF_RECORD_LOST, 0, 7),
		raw(unix.PERF_RECORD_MMAP2, 0, 7, 8, uint64(1), uint64(0), uint64(3), id, 5, 2, "/x"),
		raw(unix.PERF_RECORD_MMAP2, 0, 7, 8, uint64(1), ^uint64(0), uint64(3), id, 5, 2, "/x"),
		raw(unix.PERF_RECORD_MMAP2, 0, 7, 8, uint64(1), uint64(2), uint64(3), id),
	} {
		if r, ok := parse(c); ok {
			t.Errorf("%x: %+v", c, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(raw(unix.PERF_RECORD_MMAP2, miscMmapBuildID, 7, 8, uint64(0x1000), uint64(0x2000), uint64(0), make([]byte, 24), 5, 2, "/x (deleted)"))
	f.Add(raw(unix.PERF_RECORD_COMM, miscCommExec, 7, 7, "a b"))
	f.Add(raw(unix.PERF_RECORD_FORK, 0, 7, 3, 8, 4, uint64(5)))
	f.Add(raw(unix.PERF_RECORD_LOST, 0, uint64(1), uint64(42)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parse(b)
		if m, isMmap := r.event.(Mmap); isMmap && (!ok || m.Start >= m.End || len(m.BuildID) > maxBuildID) {
			t.Errorf("%+v, %v", m, ok)
		}
	})
}

// What a ring holds is read the same wherever in it a record lies.
func TestRingWraps(t *testing.T) {
	want := raw(unix.PERF_RECORD_COMM, miscCommExec, 7, 7, "a name")
	for at := range uint64(64) {
		page := &unix.PerfEventMmapPage{Data_tail: at * 8, Data_head: at*8 + 2*uint64(len(want))}
		r := &ring{page: page, data: make([]byte, 512)}
		for i := range 2 * len(want) {
			r.data[(at*8+uint64(i))%512] = want[i%len(want)]
		}
		got := r.drain(nil)
		if len(got) != 2 || got[0].event != (Exec{PID: 7, Comm: "a name", Time: 777}) || got[1] != got[0] || page.Data_tail != page.Data_head {
			t.Fatalf("at %d: %+v", at*8, got)
		}
	}
	for _, size := range []uint16{0, 7, 4096} { // no record: said, and not read again
		page := &unix.PerfEventMmapPage{Data_head: 64}
		r := &ring{page: page, data: make([]byte, 512)}
		binary.LittleEndian.PutUint16(r.data[6:], size)
		if got := r.drain(nil); len(got) != 1 || got[0].kind != lost || page.Data_tail != 64 {
			t.Errorf("size %d: %+v", size, got)
		}
	}
}
