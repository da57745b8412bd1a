package python

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// memory is a log whose places are the numbers of its records.
type memory struct {
	records [][]byte
	full    bool
}

var errFull = errors.New("no space left")

func (m *memory) Append(records ...[]byte) ([]uint64, error) {
	if m.full {
		return nil, errFull
	}
	var places []uint64
	for _, r := range records {
		places = append(places, uint64(len(m.records)))
		m.records = append(m.records, r)
	}
	return places, nil
}

func (m *memory) Read(place uint64) ([]byte, error) { return m.records[place], nil }

func openMemory(t testing.TB, m *memory) *Codes {
	t.Helper()
	c, err := Open(func(visit func([]byte, uint64)) (*memory, error) {
		for i, r := range m.records {
			visit(r, uint64(i))
		}
		return m, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func object(n int) *symbolizerv1.PythonCode {
	return &symbolizerv1.PythonCode{
		MinorVersion: 9, Filename: "/srv/träin.py", Qualname: fmt.Sprintf("f%d", n), Name: "f", FirstLine: 10, LineTable: []byte{0, 1, 4, 1, 4, 0xfe},
	}
}

func digest(c *symbolizerv1.PythonCode) []byte {
	d := codedigest.Digest(int(c.MinorVersion), c.Filename, c.Qualname, c.Name, c.FirstLine, c.LineTable)
	return d[:]
}

func TestCodes(t *testing.T) {
	log := &memory{}
	c := openMemory(t, log)
	if n, err := c.Add([]*symbolizerv1.PythonCode{object(1), object(2), object(1)}); n != 2 || err != nil {
		t.Fatalf("stored %d, %v", n, err)
	}
	if n, err := c.Add([]*symbolizerv1.PythonCode{object(2), object(3)}); n != 1 || err != nil {
		t.Fatalf("stored %d, %v", n, err)
	}
	for name, c := range map[string]*Codes{"at once": c, "after a restart": openMemory(t, log)} {
		t.Run(name, func(t *testing.T) {
			if c.Len() != 3 || !c.Has(digest(object(3))) || c.Has(digest(object(4))) || c.Has([]byte("short")) {
				t.Fatalf("%d code objects", c.Len())
			}
			var got []string
			err := c.Symbolize(digest(object(2)), []uint32{0, 2, 4, 8, 1 << 30}, func(i int, l *symbolizerv1.Line) {
				got = append(got, fmt.Sprintf("%d %s %s:%d from %d", i, l.Function, l.File, l.Line, l.StartLine))
			})
			want := "0 f2 /srv/träin.py:11 from 10|1 f2 /srv/träin.py:11 from 10|2 f2 /srv/träin.py:12 from 10|3 f2 /srv/träin.py:10 from 10|4 f2 /srv/träin.py:10 from 10"
			if strings.Join(got, "|") != want || err != nil {
				t.Fatalf("%s, %v", strings.Join(got, "|"), err)
			}
			if err := c.Symbolize(digest(object(4)), []uint32{0}, nil); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("absent: %v", err)
			}
		})
	}
}

func TestCodesKeepNothingThatWasNotStored(t *testing.T) {
	log := &memory{full: true}
	c := openMemory(t, log)
	if _, err := c.Add([]*symbolizerv1.PythonCode{object(1)}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if c.Has(digest(object(1))) {
		t.Fatal("a code object that was not stored is said to be here")
	}
	log.full = false
	if n, err := c.Add([]*symbolizerv1.PythonCode{object(1)}); n != 1 || err != nil {
		t.Fatalf("stored %d, %v once there is room", n, err)
	}
}

// B22: of a version that is too new, the function and file are right, and no line is guessed.
func TestB22TooNewVersion(t *testing.T) {
	c := openMemory(t, &memory{})
	o := object(1)
	o.MinorVersion = 99
	if _, err := c.Add([]*symbolizerv1.PythonCode{o}); err != nil {
		t.Fatal(err)
	}
	err := c.Symbolize(digest(o), []uint32{2}, func(_ int, l *symbolizerv1.Line) {
		if l.Function != "f1" || l.File != o.Filename || l.Line != 0 || l.StartLine != 10 {
			t.Errorf("%v", l)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(codedigest.Encode(11, "a.py", "A.b", "b", 3, []byte{0x80, 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(b)
		if err == nil {
			line(c.minor, c.firstLine, c.lineTable, 2)
		}
	})
}
