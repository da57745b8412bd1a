package objects

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// acquire gives the open index of a build, which the caller releases. The error is fs.ErrNotExist if there is none.
func (o *Objects) acquire(build string) (*shared, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.open[build]; ok {
		x := e.Value.(*shared)
		x.users++
		o.order.MoveToFront(e)
		return x, nil
	}
	file, err := o.files.Read(build, indexName)
	if errors.Is(err, fs.ErrNotExist) {
		if r, ok := o.refused[build]; ok && o.now().Before(r.until) {
			return nil, r.reason
		}
	}
	if err != nil {
		return nil, err
	}
	read, err := openIndex(file)
	if errors.Is(err, errDamaged) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	x := &shared{build: build, index: read, users: 2, answers: map[uint64][]*symbolizerv1.Line{}}
	o.open[build] = o.order.PushFront(x)
	if o.order.Len() > maxOpen {
		o.drop(o.order.Back())
	}
	return x, nil
}

func (o *Objects) release(x *shared) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unuse(x)
}

// forget makes the next acquire read the build's file anew.
func (o *Objects) forget(build string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.refused, build)
	if e, ok := o.open[build]; ok {
		o.drop(e)
	}
}

// refuse remembers that a build's file could not be read.
func (o *Objects) refuse(build string, reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.refused) >= maxRefused {
		clear(o.refused)
	}
	o.refused[build] = refusal{reason, o.now().Add(refusedFor)}
}

// drop takes an index out of the list, under o.mu.
func (o *Objects) drop(e *list.Element) {
	x := o.order.Remove(e).(*shared)
	delete(o.open, x.build)
	o.unuse(x)
}

// unuse closes an index after its last user, under o.mu.
func (o *Objects) unuse(x *shared) {
	if x.users--; x.users == 0 {
		_ = x.file.Close() // it was only read
	}
}
