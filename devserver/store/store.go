package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vramprof/vramprof/internal/profiles"
)

// Options say where a store lives and how much it keeps.
type Options struct {
	// Dir is the folder of the segments; it is made if absent. One process at a
	// time may have it open.
	Dir string
	// Retention is how long a profile is kept after its time; 0 keeps it for ever.
	Retention time.Duration
	// MaxBytes bounds the size of all segments: the oldest are removed to make
	// room. 0 is no bound.
	MaxBytes int64
	// Now is the clock of Retention. Nil is time.Now.
	Now func() time.Time
	// Logger hears of damage found and of segments removed. Nil discards.
	Logger *slog.Logger
}

// Store is a set of profiles on disk. Its methods may be called at the same time.
type Store struct {
	o     Options
	lock  *os.File
	codec codec

	// mu guards the rest. What Append does to the disk it does under mu too, so
	// that a record is in the index as soon as it is in a file.
	mu    sync.RWMutex
	index index
	// segments are in the order of their numbers; active is the last or nil.
	segments []*segment
	active   *segment
	next     uint64
	closed   bool
}

var (
	// ErrClosed is what a closed store answers.
	ErrClosed = errors.New("store is closed")
	// ErrTooLarge is in the error of a profile that no record can hold.
	ErrTooLarge = errors.New("too large for a record")
)

// maxSegment is the size at which the next segment is begun, unless MaxBytes
// asks for less: it is cut in eighths, so that at most an eighth goes at a time.
const maxSegment = 64 << 20

// Open opens the store in o.Dir and reads every segment there, which takes about
// as long as reading the files. Records that are torn or damaged are logged and
// passed over. It fails if another process has the folder open.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(o.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: lock %s: %w: another process has it open; stop that or take another folder", o.Dir, err), lock.Close())
	}
	s := &Store{o: o, lock: lock, index: index{}, next: 1}
	if s.codec, err = newCodec(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.Close())
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.Close())
	}
	return s, nil
}

func (s *Store) load() error {
	files, err := os.ReadDir(s.o.Dir) // sorted by name, so by number
	if err != nil {
		return err
	}
	for _, file := range files {
		var number uint64
		path := filepath.Join(s.o.Dir, file.Name())
		if _, err := fmt.Sscanf(file.Name(), "%d.segment", &number); err != nil || segmentPath(s.o.Dir, number) != path {
			continue
		}
		s.next = max(s.next, number+1)
		seg, damaged, err := openSegment(path, number, func(r record, id identity) {
			for i, labels := range id.series {
				s.index.add(labels.Key(), labels, entry{nanos: id.nanos, record: r, place: i, total: id.totals[i]})
			}
		})
		if errors.Is(err, errForeign) {
			s.o.Logger.Warn("file in the store is not a segment; left alone", "path", path)
			continue
		}
		if err != nil {
			return err
		}
		if damaged > 0 || seg.torn {
			s.o.Logger.Warn("segment is damaged; its whole records are kept", "path", path, "damaged", damaged, "torn", seg.torn)
		}
		s.segments = append(s.segments, seg)
	}
	if n := len(s.segments); n > 0 {
		s.active = s.segments[n-1]
	}
	return s.evict(0)
}

// Append keeps profiles: all of them, or none if it returns an error. On return
// they are written, as the package comment says. What a series says at a time of
// which the store has something already is passed over, as a retry would send it.
// If the disk is full the error wraps syscall.ENOSPC and what was stored stays.
func (s *Store) Append(ctx context.Context, batch []profiles.Profile) error {
	pieces := make([]piece, 0, len(batch))
	for i := range batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := s.piece(&batch[i])
		if err != nil {
			return fmt.Errorf("append profile: %w", err)
		}
		pieces = append(pieces, p)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	pieces = slices.DeleteFunc(pieces, func(p piece) bool {
		return !slices.ContainsFunc(p.keys, func(key string) bool { return !s.index.has(key, p.profile.TimeNanos) })
	})
	if len(pieces) == 0 {
		return nil
	}
	var records []byte
	oldest, newest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, p := range pieces {
		records = append(records, p.record...)
		oldest, newest = min(oldest, p.profile.TimeNanos), max(newest, p.profile.TimeNanos)
	}
	if err := s.room(int64(len(records)), oldest, newest); err != nil {
		return fmt.Errorf("append profile: %w", err)
	}
	at := s.active.size
	if err := s.active.write(records); err != nil {
		return fmt.Errorf("append profile: %w; free space there or lower the size that the store may take", err)
	}
	for _, p := range pieces {
		nanos := p.profile.TimeNanos
		s.active.holds(nanos)
		r := record{segment: s.active, offset: at + recordHeader, size: len(p.record) - recordHeader}
		for i, labels := range p.profile.Series {
			s.index.add(p.keys[i], labels, entry{nanos: nanos, record: r, place: i, total: p.profile.Total(i)})
		}
		at += int64(len(p.record))
	}
	return nil
}

// piece is a profile that is ready to be written.
type piece struct {
	profile *profiles.Profile
	keys    []string // of its series
	record  []byte
}

func (s *Store) piece(p *profiles.Profile) (piece, error) {
	if err := p.Check(); err != nil {
		return piece{}, err
	}
	out := piece{profile: p}
	for _, labels := range p.Series {
		out.keys = append(out.keys, labels.Key())
	}
	var err error
	out.record, err = appendRecord(nil, func(dst []byte) ([]byte, error) { return s.codec.encode(dst, p) })
	return out, err
}

// room makes active a segment that can take size more bytes, within the bounds.
func (s *Store) room(size, oldest, newest int64) error {
	limit := int64(maxSegment)
	if s.o.MaxBytes > 0 {
		if size+int64(len(magic)) > s.o.MaxBytes {
			return fmt.Errorf("%w: %d bytes at once are over the store's size of %d", ErrTooLarge, size, s.o.MaxBytes)
		}
		limit = min(limit, s.o.MaxBytes/8)
	}
	if a := s.active; a != nil {
		empty := a.size == int64(len(magic))
		full := !empty && a.size+size > limit
		span := max(a.newest, newest)/8 - min(a.oldest, oldest)/8 // in eighths, which cannot overflow
		if a.torn || full || !empty && s.o.Retention > 0 && span > int64(s.o.Retention)/64 {
			if err := a.file.Sync(); err != nil {
				return fmt.Errorf("sync %s: %w", a.file.Name(), err)
			}
			s.active = nil
		}
	}
	if err := s.evict(size + int64(len(magic))); err != nil {
		return err
	}
	if s.active != nil {
		return nil
	}
	seg, err := createSegment(s.o.Dir, s.next)
	if err != nil {
		return err
	}
	s.next++
	s.segments, s.active = append(s.segments, seg), seg
	return nil
}

// horizon is the oldest time that is kept.
func (s *Store) horizon() int64 {
	if s.o.Retention <= 0 {
		return math.MinInt64
	}
	return s.o.Now().Add(-s.o.Retention).UnixNano()
}

// evict removes the segments that are wholly too old, then the oldest until there
// are size bytes of room.
func (s *Store) evict(size int64) error {
	var total int64
	for _, seg := range s.segments {
		total += seg.size
	}
	horizon := s.horizon()
	for _, seg := range slices.Clone(s.segments) {
		old, large := seg.newest < horizon, s.o.MaxBytes > 0 && total+size > s.o.MaxBytes
		if !old && !large {
			continue
		}
		if err := seg.remove(); err != nil {
			return fmt.Errorf("remove old segment: %w", err)
		}
		s.o.Logger.Info("removed a segment", "path", seg.file.Name(), "bytes", seg.size, "old", old, "store_full", large)
		total -= seg.size
		s.index.drop(seg)
		s.segments = slices.DeleteFunc(s.segments, func(x *segment) bool { return x == seg })
		if s.active == seg {
			s.active = nil
		}
	}
	return nil
}

type found struct {
	entry
	labels profiles.Labels
}

// find returns the entries of what is selected, the oldest first and then by labels.
func (s *Store) find(match func(profiles.Labels) bool, fromNanos, toNanos int64) ([]found, error) {
	var all []found
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, ErrClosed
	}
	fromNanos = max(fromNanos, s.horizon())
	for _, x := range s.index {
		if entries := x.between(fromNanos, toNanos); len(entries) > 0 && match(x.labels) {
			for _, e := range entries {
				all = append(all, found{e, x.labels})
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.nanos, b.nanos), a.labels.Compare(b.labels))
	})
	return all, nil
}

// Select visits what the series whose labels match said from fromNanos to toNanos,
// both included, the oldest first and then by labels. Each is the visitor's to
// keep, but for its labels, which are shared. It ends with the error of visit, if
// there is one. A record that has gone bad on the disk ends it with an error too;
// what retention removes meanwhile is passed over. Match must not call the store.
func (s *Store) Select(ctx context.Context, match func(profiles.Labels) bool, fromNanos, toNanos int64, visit func(*profiles.Selected) error) error {
	all, err := s.find(match, fromNanos, toNanos)
	if err != nil {
		return err
	}
	for _, f := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		payload, err := f.read()
		if errors.Is(err, os.ErrClosed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read profile in %s at %d: %w", f.segment.file.Name(), f.offset, err)
		}
		p, err := s.codec.decode(payload, f.place)
		if err != nil {
			return fmt.Errorf("decode profile in %s at %d: %w", f.segment.file.Name(), f.offset, err)
		}
		p.Labels = f.labels
		if err := visit(p); err != nil {
			return err
		}
	}
	return nil
}

// Totals visits the same as Select with only the sum of the values of each, for
// which nothing is read from the disk.
func (s *Store) Totals(match func(profiles.Labels) bool, fromNanos, toNanos int64, visit func(labels profiles.Labels, nanos, total int64)) error {
	all, err := s.find(match, fromNanos, toNanos)
	if err != nil {
		return err
	}
	for _, f := range all {
		visit(f.labels, f.nanos, f.total)
	}
	return nil
}

// Series lists the label sets that match and have a profile from fromNanos to
// toNanos, both included, sorted; 0 and 0 is any time. They are shared: do not
// change them. Match must not call the store.
func (s *Store) Series(match func(profiles.Labels) bool, fromNanos, toNanos int64) []profiles.Labels {
	if fromNanos == 0 && toNanos == 0 {
		fromNanos, toNanos = math.MinInt64, math.MaxInt64
	}
	var all []profiles.Labels
	s.mu.RLock()
	fromNanos = max(fromNanos, s.horizon())
	for _, x := range s.index {
		if len(x.between(fromNanos, toNanos)) > 0 && match(x.labels) {
			all = append(all, x.labels)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, profiles.Labels.Compare)
	return all
}

// Close syncs the segments and lets go of the folder. A Select that is running
// sees no more profiles.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}
