package push

import (
	"container/list"
	"time"

	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

// item is a profile that waits or is being sent.
type item struct {
	labels   []*typesv1.LabelPair
	gzipped  []byte
	size     int64 // of the profile before it was compressed, by which it is counted
	time     time.Time
	failures int       // of the server on it
	crowds   int       // how often in a row the server wanted less
	after    time.Time // it is not tried before
	halved   bool
	sending  bool
	element  *list.Element
}

// bytes is the memory of an item, about.
func (i *item) bytes() int64 { return int64(len(i.gzipped)) + labelBytes(i.labels) + 512 }

// queue is what waits, the oldest first. It keeps the metrics true.
type queue struct {
	items   *list.List
	bytes   int64
	metrics *metrics
}

func (q *queue) add(i *item) {
	i.element = q.items.PushBack(i)
	q.account(i, 1)
}

// replace puts items in the place of one.
func (q *queue) replace(old *item, with ...*item) {
	for _, i := range with {
		i.element = q.items.InsertBefore(i, old.element)
		q.account(i, 1)
	}
	q.remove(old)
}

func (q *queue) remove(i *item) {
	q.items.Remove(i.element)
	q.account(i, -1)
}

func (q *queue) drop(i *item, r Reason) {
	q.remove(i)
	q.metrics.drop(r, i.size)
}

func (q *queue) account(i *item, sign int64) {
	q.bytes += sign * i.bytes()
	q.metrics.waitingProfiles.Add(float64(sign))
	q.metrics.waitingBytes.Add(float64(sign * i.size))
	q.metrics.queueBytes.Set(float64(q.bytes))
}

func (q *queue) oldestIdle() *item {
	for e := q.items.Front(); e != nil; e = e.Next() {
		if i := e.Value.(*item); !i.sending {
			return i
		}
	}
	return nil
}

// next gives the oldest item that may be tried now, and drops those on the way that came too late. If there is none, it
// gives the time at which one may be; zero if nothing waits.
func (q *queue) next(now time.Time, maxAge time.Duration) (_ *item, at time.Time) {
	for e := q.items.Front(); e != nil; {
		i := e.Value.(*item)
		e = e.Next()
		switch {
		case i.sending:
		case now.Sub(i.time) > maxAge:
			q.drop(i, Expired)
		case !now.Before(i.after):
			return i, time.Time{}
		case at.IsZero() || i.after.Before(at):
			at = i.after
		}
	}
	return nil, at
}
