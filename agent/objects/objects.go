// Package objects opens the files that processes map and keeps what is known of each: its identity, its unwind rows, the
// Python in it. A file is opened once, through a process that maps it, and shared by all that map the same build.
//
// It opens and parses; what to do with a file is decided elsewhere.
package objects

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	"github.com/vramprof/vramprof/internal/cpython"
	"github.com/vramprof/vramprof/internal/ehframe"
	"github.com/vramprof/vramprof/internal/elfobj"
)

// Key tells one mapped file from another: by build ID where it has one, else by the file system's identity of it.
type Key struct {
	BuildID    string // raw bytes
	Dev, Inode uint64
}

// Object is one ELF file. Its methods may be called from several goroutines.
type Object struct {
	// Name is the file's base name, to show.
	Name string
	// Python is the interpreter that the file holds; nil for none.
	Python *cpython.Interpreter
	// PythonProblem says why the file's Python cannot be walked, for a file that holds one; empty otherwise.
	PythonProblem string

	store *Store
	file  *os.File
	size  int64
	elf   *elfobj.File

	identity sync.Once
	id       string

	rows  sync.Once
	table *ehframe.Table
	err   error
}

// ID is the identity by which a symbolizer knows the file: elfobj.Identity. Of a file without build ID that is a digest,
// which is made on the first call. It is empty for a file that cannot be read any more.
func (o *Object) ID() string {
	o.identity.Do(func() {
		id, err := o.elf.Identity()
		if err != nil {
			return // its frames are named by object and offset
		}
		o.store.mu.Lock()
		defer o.store.mu.Unlock()
		o.id = id
		o.store.byID[id] = o
	})
	return o.id
}

// LoadBias is what to take from an address in a mapping of the file to get the address in the file's own numbering.
func (o *Object) LoadBias(start, offset uint64) (uint64, bool) { return o.elf.LoadBias(start, offset) }

// BeginsSegment tells whether a mapping from offset on is where an executable segment begins, as a loader maps it. Others
// may map one page of it a second time at another distance (libffi does, for its trampolines): code there runs, but what
// it refers to lies elsewhere.
func (o *Object) BeginsSegment(offset uint64) bool {
	for _, s := range o.elf.Segments() {
		if s.Executable && offset == s.Offset&^(uint64(os.Getpagesize())-1) {
			return true
		}
	}
	return false
}

// Rows are the file's unwind rows. They are parsed on the first call: some ten milliseconds for a large library.
func (o *Object) Rows() (*ehframe.Table, error) {
	o.rows.Do(func() {
		eh, ehAddress, hdr, hdrAddress, err := o.elf.EHFrame()
		if err == nil {
			o.table, err = ehframe.Parse(eh, ehAddress, hdr, hdrAddress)
		}
		if err != nil {
			o.err = fmt.Errorf("unwind rows of %s: %w", o.Name, err)
		}
	})
	return o.table, o.err
}

// Reduced writes what symbols need of the file: elfobj.Reduce.
func (o *Object) Reduced(w io.Writer) error { return elfobj.Reduce(w, o.file, o.size) }

// ErrGone says that a file could not be opened because the process that mapped it is gone, or the file is. It may be
// found again through another process.
var ErrGone = errors.New("the file cannot be opened any more")

// Store keeps the objects by Key. Its methods may be called from several goroutines.
type Store struct {
	mu      sync.Mutex
	objects map[Key]*Object
	byID    map[string]*Object
	refused map[Key]error
	// inspected are objects whose files were closed again: an open file keeps its mount busy
	inspected map[Key]*Object
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{objects: map[Key]*Object{}, byID: map[string]*Object{}, refused: map[Key]error{}, inspected: map[Key]*Object{}}
}

// ByID gives an object by an identity that its ID has given.
func (s *Store) ByID(id string) (*Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.byID[id]
	return o, ok
}

// Get gives the object of a mapping, and opens it if it is new: through the process's own mapping first, which is the
// file that it runs even if another has taken its name, then by its name in the process's root, then in our own, if it
// still is the same build. A file that cannot be read as ELF is refused for good.
func (s *Store) Get(key Key, pid uint32, start, end uint64, name string) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[key]; ok {
		return o, nil
	}
	o, err := s.open(key, pid, start, end, name)
	if err == nil {
		s.objects[key] = o
		delete(s.inspected, key)
	}
	return o, err
}

// Inspect does as Get does, for a file of which only Python and the segments are of interest: it does not stay open.
func (s *Store) Inspect(key Key, pid uint32, start, end uint64, name string) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range []map[Key]*Object{s.objects, s.inspected} {
		if o, ok := known[key]; ok {
			return o, nil
		}
	}
	o, err := s.open(key, pid, start, end, name)
	if err != nil {
		return nil, err
	}
	s.inspected[key] = o
	return o, o.file.Close()
}

func (s *Store) open(key Key, pid uint32, start, end uint64, name string) (*Object, error) {
	if err, ok := s.refused[key]; ok {
		return nil, err
	}
	candidates := []string{
		fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end),
		fmt.Sprintf("/proc/%d/root%s", pid, name),
		name,
	}
	var problem error
	for i, c := range candidates {
		f, err := os.Open(c)
		if err != nil {
			problem = err
			continue
		}
		o, err := s.read(f, path.Base(name))
		if err != nil {
			f.Close()
			err = fmt.Errorf("read %s of process %d: %w", name, pid, err)
			if i == 0 { // certainly the file that is mapped
				s.refused[key] = err
				return nil, err
			}
			problem = err
			continue
		}
		if key.BuildID != "" && key.BuildID != string(o.elf.BuildID()) {
			f.Close()
			problem = fmt.Errorf("%s is another build now", name)
			continue
		}
		return o, nil
	}
	return nil, fmt.Errorf("open %s of process %d: %w: %w", name, pid, ErrGone, problem)
}

func (s *Store) read(f *os.File, name string) (*Object, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	e, err := elfobj.Open(f, info.Size())
	if err != nil {
		return nil, err
	}
	o := &Object{Name: name, store: s, file: f, size: info.Size(), elf: e}
	python, found, err := cpython.Recognise(pythonFile{e})
	if err != nil {
		o.PythonProblem = err.Error()
	} else if found {
		o.Python = &python
	}
	return o, nil
}

// pythonFile is what cpython.Recognise reads of a file.
type pythonFile struct{ *elfobj.File }

func (f pythonFile) Lookup(name string) (uint64, bool) {
	s, ok := f.File.Lookup(name)[name]
	return s.Value, ok
}
