package symbols

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps what the service answered, least recently used out first, within a number of bytes. It is not safe for
// concurrent use.
type cache struct {
	lru       *simplelru.LRU[place, cached]
	size, max int64
}

type cached struct {
	location Location
	until    time.Time // zero: for good
}

// overhead is about what an entry costs beyond its texts: the key, the list element, the map's slot, the slice.
const overhead = 300

func (c cached) size(p place) int64 {
	n := int64(overhead + len(p.id))
	for _, l := range c.location.Lines {
		n += int64(64 + len(l.Function) + len(l.SystemName) + len(l.File))
	}
	return n
}

func newCache(bytes int64) (*cache, error) {
	c := &cache{max: bytes}
	lru, err := simplelru.NewLRU(int(bytes/overhead)+1, func(p place, v cached) { c.size -= v.size(p) })
	c.lru = lru
	return c, err
}

func (c *cache) get(p place, now time.Time) (Location, bool) {
	v, ok := c.lru.Get(p)
	if ok && !v.until.IsZero() && !now.Before(v.until) {
		c.lru.Remove(p)
		ok = false
	}
	return v.location, ok
}

func (c *cache) put(p place, l Location, until time.Time) {
	c.lru.Remove(p)
	v := cached{l, until}
	c.size += v.size(p)
	c.lru.Add(p, v)
	for c.size > c.max {
		c.lru.RemoveOldest()
	}
}
