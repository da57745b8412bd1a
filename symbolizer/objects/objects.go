// Package objects keeps the symbols of native builds: an uploaded ELF file becomes an index on disk, sorted by address,
// from which a name is read without loading the rest.
package objects

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/elfobj"
)

// Files keeps the files of builds. Read gives fs.ErrNotExist for what is not there; Write is whole or not at all.
type Files interface {
	Read(build, name string) (*os.File, error)
	Write(build, name string, write func(*os.File) error) error
}

const (
	indexName = "symbols"
	// maxOpen is how many indexes are open at once: a file descriptor each, and half a byte for every symbol.
	maxOpen = 512
	// maxAnswers is how many answers are remembered for each: the same places come again every interval.
	maxAnswers = 1024
	// maxBuilding is how many indexes are built at once, since each holds its symbols' addresses in memory.
	maxBuilding = 2
	// refusedFor is how long a build whose file could not be read is not asked for again.
	refusedFor = time.Hour
	// maxRefused is how many such builds are remembered.
	maxRefused = 10_000
)

// Objects answers for native addresses. Its methods may be called from several goroutines.
type Objects struct {
	files    Files
	now      func() time.Time
	building chan struct{}

	mu      sync.Mutex
	open    map[string]*list.Element // of *shared
	order   *list.List               // the last used first
	refused map[string]refusal

	hits, misses atomic.Uint64
}

// shared is an open index with its users. The list of open indexes is one of them.
type shared struct {
	build string
	*index
	users int // under Objects.mu

	mu      sync.Mutex
	answers map[uint64][]*symbolizerv1.Line
}

type refusal struct {
	reason error
	until  time.Time
}

// New makes the objects that are kept in files. now is the clock.
func New(files Files, now func() time.Time) *Objects {
	return &Objects{
		files: files, now: now, building: make(chan struct{}, maxBuilding),
		open: map[string]*list.Element{}, order: list.New(), refused: map[string]refusal{},
	}
}

// Wants tells whether nothing is known of a build, so that an upload would help.
func (o *Objects) Wants(build string) bool {
	x, err := o.acquire(build)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	o.release(x)
	return false
}

// Complete tells whether no upload of a build can be better than what is known.
func (o *Objects) Complete(build string) bool {
	x, err := o.acquire(build)
	if err != nil {
		return false
	}
	defer o.release(x)
	return x.source == sourceTable
}

// Add takes the ELF file of a build, whole or reduced, of size bytes. It gives the number of symbols of functions, and
// whether they were better than what was there, or the first. The file must be the build that it is said to be: its
// build ID, or the digest of its reduced copy, says so. The error is fs.ErrInvalid if the file is at fault; what cannot be
// read of a build that it proves to be is not wanted again for an hour.
func (o *Objects) Add(build string, r io.ReaderAt, size int64) (symbols uint64, stored bool, err error) {
	f, err := elfobj.Open(r, size)
	if err != nil {
		return 0, false, invalid{err}
	}
	if err := f.Damage(); err != nil {
		return 0, false, invalid{err}
	}
	id, err := f.Identity()
	if err != nil {
		return 0, false, invalid{err}
	}
	if id != build {
		return 0, false, invalid{fmt.Errorf("the file is build %s, not %s", id, build)}
	}
	o.building <- struct{}{}
	defer func() { <-o.building }()
	best := bestSource(f)
	if x, err := o.acquire(build); err == nil {
		present, symbols := x.source, x.symbols
		o.release(x)
		if present >= best {
			return symbols, false, nil
		}
	}
	err = o.files.Write(build, indexName, func(w *os.File) (err error) {
		symbols, err = writeIndex(w, best, func(put func([]byte) (name, error)) ([]span, error) { return collect(f, put) })
		return err
	})
	if errors.Is(err, fs.ErrInvalid) {
		o.refuse(build, err)
	}
	if err != nil {
		return 0, false, err
	}
	o.forget(build)
	return symbols, true, nil
}

// invalid is an error that the file is at fault for.
type invalid struct{ error }

func (e invalid) Unwrap() error        { return e.error }
func (e invalid) Is(target error) bool { return target == fs.ErrInvalid }

// Symbolize gives the functions at addresses of a build, the innermost first, to answer: none where no symbol covers the
// address. The lines are shared: do not change them. The error is fs.ErrNotExist if the build is not here; any other says
// why it cannot be used.
func (o *Objects) Symbolize(build string, addresses []uint64, answer func(i int, lines []*symbolizerv1.Line)) error {
	x, err := o.acquire(build)
	if err != nil {
		return err
	}
	defer o.release(x)
	for i, address := range addresses {
		lines, err := o.lines(x, address)
		if err != nil {
			return err
		}
		answer(i, lines)
	}
	return nil
}

func (o *Objects) lines(x *shared, address uint64) ([]*symbolizerv1.Line, error) {
	x.mu.Lock()
	lines, ok := x.answers[address]
	x.mu.Unlock()
	if ok {
		o.hits.Add(1)
		return lines, nil
	}
	o.misses.Add(1)
	raw, err := x.lookup(address)
	if err != nil {
		return nil, err
	}
	if raw != "" {
		line := &symbolizerv1.Line{Function: function(raw)}
		if raw != line.Function {
			line.SystemName = valid(raw)
		}
		lines = []*symbolizerv1.Line{line}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.answers) >= maxAnswers {
		clear(x.answers)
	}
	x.answers[address] = lines
	return lines, nil
}

// Cache tells how many addresses were answered from memory, and how many from disk.
func (o *Objects) Cache() (hits, misses uint64) { return o.hits.Load(), o.misses.Load() }

// Close closes the indexes, those in use as soon as they are not.
func (o *Objects) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.order.Len() > 0 {
		o.drop(o.order.Back())
	}
}
