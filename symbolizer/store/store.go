// Package store keeps the symbolizer's files on disk so that neither a restart nor a kill at any moment loses or breaks
// what was stored: files are written aside, synced and renamed, and logs are only ever appended to.
//
// It knows folders of builds and logs of records, and not what is in them.
package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// ErrFull says that the disk has no room for what was to be stored. Nothing that was stored before is harmed.
var ErrFull = errors.New("no space left: free some, or choose a larger disk with --data-dir")

// ErrBuildID says that a build ID is not one that vramprof.symbolizer.v1.Object describes. No path is made of it.
var ErrBuildID = errors.New(`a build ID is "gnu:" and up to 64 bytes, or "sha256:" and 32 bytes, in lower-case hexadecimal`)

// Store is a folder. Its methods may be called from several goroutines, and several processes may share the folder.
type Store struct {
	dir string
}

const (
	objectsDir   = "objects"   // objects/<build ID's first byte>/<build ID>/<file>
	logsDir      = "logs"      // logs/<log>/<segment>
	temporaryDir = "temporary" // what is being written
	// staleAfter is when a file that is being written has no writer any more: longer than any upload may take.
	staleAfter = 24 * time.Hour
)

// Open makes the folder if it is not there, and removes what writers that were killed left behind.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{objectsDir, logsDir, temporaryDir} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w: give a folder that can be written with --data-dir", err)
		}
	}
	probe, err := s.Temporary()
	if err != nil {
		return nil, fmt.Errorf("open store: %w: give a folder that can be written with --data-dir", err)
	}
	probe.Discard()
	left, err := os.ReadDir(filepath.Join(dir, temporaryDir))
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	for _, e := range left {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > staleAfter {
			err = os.Remove(filepath.Join(dir, temporaryDir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open store: remove what a killed writer left: %w", err)
		}
	}
	return s, nil
}

// Read opens a file of a build. The error is fs.ErrNotExist if it is not there. The caller closes the file; it stays as it
// is if it is replaced meanwhile.
func (s *Store) Read(build, name string) (*os.File, error) {
	dir, err := s.folder(build)
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, name))
}

// Has tells whether a file of a build is there.
func (s *Store) Has(build, name string) bool {
	dir, err := s.folder(build)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, name))
	return err == nil
}

// Write stores a file of a build, whole or not at all, in place of an older one. write is given a file to fill; when Write
// returns without an error, the file is safe from a crash of the machine.
func (s *Store) Write(build, name string, write func(*os.File) error) (err error) {
	dir, err := s.folder(build)
	if err != nil {
		return err
	}
	t, err := s.Temporary()
	if err != nil {
		return fmt.Errorf("store %s of %s: %w", name, build, err)
	}
	defer t.Discard()
	if err := write(t.File); err != nil {
		return fmt.Errorf("store %s of %s: %w", name, build, full(err))
	}
	if err := t.Sync(); err != nil {
		return fmt.Errorf("store %s of %s: %w", name, build, full(err))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store %s of %s: %w", name, build, full(err))
	}
	if err := os.Rename(t.Name(), filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("store %s of %s: %w", name, build, full(err))
	}
	for d := dir; len(d) >= len(s.dir); d = filepath.Dir(d) { // the new names of each level
		if err := syncDir(d); err != nil {
			return fmt.Errorf("store %s of %s: %w", name, build, full(err))
		}
	}
	return nil
}

// Temporary is a file that is gone when its user is done with it, and after a crash.
type Temporary struct{ *os.File }

// Temporary makes an empty temporary file, open for reading and writing. The caller discards it.
func (s *Store) Temporary() (Temporary, error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, temporaryDir), "")
	return Temporary{f}, full(err)
}

// Write appends to the file. The error is ErrFull if the disk is full.
func (t Temporary) Write(b []byte) (int, error) {
	n, err := t.File.Write(b)
	return n, full(err)
}

// Discard closes and removes the file. What has been given another place stays there.
func (t Temporary) Discard() {
	// Errors leave a file that Open removes one day.
	_ = t.Close()
	_ = os.Remove(t.Name())
}

var buildID = regexp.MustCompile(`^(gnu:([0-9a-f]{2}){1,64}|sha256:[0-9a-f]{64})$`)

// CheckBuildID gives ErrBuildID for what is no build ID.
func CheckBuildID(build string) error {
	if !buildID.MatchString(build) {
		return ErrBuildID
	}
	return nil
}

// folder is where the files of a build are. Only characters of a checked build ID get into the path.
func (s *Store) folder(build string) (string, error) {
	if err := CheckBuildID(build); err != nil {
		return "", err
	}
	kind, id, _ := strings.Cut(build, ":")
	return filepath.Join(s.dir, objectsDir, id[:2], kind+"-"+id), nil
}

// full makes a full disk, or a used up quota, ErrFull.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// reader reads a log's segment from its start and knows where it is.
type reader struct {
	*bufio.Reader
	at int64
}

func (r *reader) full(b []byte) error {
	n, err := io.ReadFull(r.Reader, b)
	r.at += int64(n)
	return err
}
