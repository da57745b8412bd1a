// Package python keeps what tracebacks need of CPython code objects, by digest, and finds the line of an instruction in the
// line table of each version's format.
package python

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// Digest names a code object: codedigest.Digest.
type Digest = [codedigest.Size]byte

// Log keeps records. Append stores all or none, and tells their places, by which Read gives them.
type Log interface {
	Append(records ...[]byte) ([]uint64, error)
	Read(place uint64) ([]byte, error)
}

// Codes are the code objects of a log, whose records are what codedigest.Encode makes: the digest of a code object is the
// SHA-256 of its record. Its methods may be called from several goroutines.
type Codes struct {
	log Log

	adding sync.Mutex // one at a time, so that nothing is stored twice
	mu     sync.RWMutex
	places map[Digest]uint64
}

// Open opens the log, by a function that gives each record there is to visit.
func Open[L Log](open func(visit func(record []byte, place uint64)) (L, error)) (*Codes, error) {
	c := &Codes{places: map[Digest]uint64{}}
	log, err := open(func(record []byte, place uint64) { c.places[sha256.Sum256(record)] = place })
	if err != nil {
		return nil, err
	}
	c.log = log
	return c, nil
}

// Has tells whether a code object is here.
func (c *Codes) Has(digest []byte) bool {
	_, ok := c.place(digest)
	return ok
}

func (c *Codes) place(digest []byte) (place uint64, ok bool) {
	if len(digest) != codedigest.Size {
		return 0, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	place, ok = c.places[Digest(digest)]
	return place, ok
}

// Len is the number of code objects.
func (c *Codes) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.places)
}

// Add stores those code objects that are new, all or none, and gives their number.
func (c *Codes) Add(codes []*symbolizerv1.PythonCode) (stored int, err error) {
	c.adding.Lock()
	defer c.adding.Unlock()
	var digests []Digest
	var records [][]byte
	batch := map[Digest]bool{}
	for _, p := range codes {
		record := codedigest.Encode(int(p.GetMinorVersion()), p.GetFilename(), p.GetQualname(), p.GetName(), p.GetFirstLine(), p.GetLineTable())
		digest := Digest(sha256.Sum256(record))
		if !batch[digest] && !c.Has(digest[:]) {
			batch[digest] = true
			digests, records = append(digests, digest), append(records, record)
		}
	}
	if len(records) == 0 {
		return 0, nil
	}
	places, err := c.log.Append(records...)
	if err != nil {
		return 0, fmt.Errorf("store code objects: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range digests {
		c.places[d] = places[i]
	}
	return len(records), nil
}

// Symbolize gives the function, file and line of instructions of a code object, each a byte offset into its bytecode, to
// answer. The line is 0 where a traceback shows "line None", and for versions of CPython whose format is not known. The error is
// fs.ErrNotExist if the code object is not here.
func (c *Codes) Symbolize(digest []byte, instructions []uint32, answer func(i int, line *symbolizerv1.Line)) error {
	place, ok := c.place(digest)
	if !ok {
		return fs.ErrNotExist
	}
	record, err := c.log.Read(place)
	if err != nil {
		return err
	}
	code, err := decode(record)
	if err != nil {
		return err
	}
	for i, instruction := range instructions {
		number, _ := line(code.minor, code.firstLine, code.lineTable, instruction)
		answer(i, &symbolizerv1.Line{Function: code.qualname, File: code.filename, Line: max(number, 0), StartLine: max(code.firstLine, 0)})
	}
	return nil
}

// code is a decoded record.
type code struct {
	minor              int
	filename, qualname string
	firstLine          int32
	lineTable          []byte
}

var errRecord = errors.New("the record is not a code object")

// decode reads what codedigest.Encode wrote.
func decode(record []byte) (c code, err error) {
	var fields [6][]byte
	for i := range fields {
		if len(record) < 4 {
			return code{}, errRecord
		}
		size := binary.LittleEndian.Uint32(record)
		if record = record[4:]; uint64(size) > uint64(len(record)) {
			return code{}, errRecord
		}
		fields[i], record = record[:size], record[size:]
	}
	minor, err1 := strconv.Atoi(string(fields[0]))
	first, err2 := strconv.ParseInt(string(fields[4]), 10, 32)
	if err1 != nil || err2 != nil || len(record) > 0 {
		return code{}, errRecord
	}
	return code{minor, string(fields[1]), string(fields[2]), int32(first), fields[5]}, nil
}
