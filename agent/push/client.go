package push

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

// Profile is one profile of one series.
type Profile struct {
	// Labels are the series' without __name__, which is always "gpu". What the server would refuse is changed and counted.
	Labels map[string]string
	// Time is the profile's. If the series had one of that time, or a later one, it is moved behind it; the profile is
	// changed to say the same.
	Time time.Time
	// Pprof is the encoded profile, not compressed.
	Pprof []byte
}

// Client pushes to one server. Its methods may be called from several goroutines.
type Client struct {
	options Options
	service pushv1connect.PusherServiceClient
	metrics *metrics
	ctx     context.Context // of requests
	cancel  context.CancelFunc
	sends   sync.WaitGroup
	wake    chan struct{}
	stopped chan struct{}
	zippers sync.Pool // of *gzip.Writer, 800 kB each

	mu     sync.Mutex
	times  times
	queue  queue
	pace   pace
	closed bool
	logged map[Reason]time.Time
}

// ErrClosed says that a profile was not taken because the client was closed.
var ErrClosed = errors.New("the client is closed")

// New makes a client, which sends nothing before the first Push. The caller closes it.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("metrics of pushes: %w", err)
	}
	c := &Client{
		options: o,
		// an answer is empty: asking for it compressed would only cost the server
		service: pushv1connect.NewPusherServiceClient(transport{o}, o.URL, connect.WithReadMaxBytes(1<<20), connect.WithAcceptCompression("gzip", nil, nil)),
		metrics: m,
		wake:    make(chan struct{}, 1), stopped: make(chan struct{}),
		times:   times{last: map[string]int64{}},
		zippers: sync.Pool{New: func() any { return gzip.NewWriter(nil) }},
		logged:  map[Reason]time.Time{},
		queue:   queue{items: list.New(), metrics: m},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// Push takes a profile to send. It does not wait for the server: an error says that the profile is dropped already.
func (c *Client) Push(p Profile) error {
	labels, changed := series(p.Labels)
	c.metrics.change(changed)
	size := int64(len(p.Pprof))
	if n := size + labelBytes(labels); n > int64(c.options.MaxBytes) {
		c.metrics.drop(TooLarge, size)
		return fmt.Errorf("push profile: %d bytes, the server takes %d", n, c.options.MaxBytes)
	}
	c.mu.Lock()
	at := c.times.unique(key(labels), p.Time)
	c.mu.Unlock()
	it, err := c.newItem(labels, p.Pprof, at)
	if err != nil {
		c.metrics.drop(Malformed, size)
		return fmt.Errorf("push profile: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.metrics.drop(Shutdown, size)
		return fmt.Errorf("push profile: %w", ErrClosed)
	}
	c.queue.add(it)
	c.makeRoom()
	c.signal()
	return nil
}

// makeRoom drops the oldest profiles until the rest is within bounds.
func (c *Client) makeRoom() {
	for n := 0; c.queue.bytes > c.options.QueueBytes; n++ {
		it := c.queue.oldestIdle()
		if it == nil {
			return // all are being sent
		}
		if n == 0 && !c.pace.full {
			c.pace.full = true
			c.options.Logger.Warn("the queue of profiles is full: the oldest are dropped", "url", c.options.URL, "bytes", c.options.QueueBytes)
		}
		c.queue.drop(it, QueueFull)
	}
}

// Close takes no more profiles, and delivers what waits for as long as ctx allows. An error says how many are lost.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.signal()
	c.mu.Unlock()
	select {
	case <-c.stopped:
	case <-ctx.Done():
	}
	c.cancel()
	<-c.stopped
	c.sends.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.queue.items.Len()
	for it := c.queue.oldestIdle(); it != nil; it = c.queue.oldestIdle() {
		c.queue.drop(it, Shutdown)
	}
	if lost > 0 {
		return fmt.Errorf("close push client: %d profiles not delivered to %s: %w", lost, c.options.URL, context.Cause(ctx))
	}
	return nil
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func labelBytes(labels []*typesv1.LabelPair) (n int64) {
	for _, l := range labels {
		n += int64(len(l.Name) + len(l.Value))
	}
	return n
}

// newItem makes what waits in the queue: the profile with its time in it, compressed.
func (c *Client) newItem(labels []*typesv1.LabelPair, profile []byte, at time.Time) (*item, error) {
	stamped, err := withTime(profile, at)
	if err != nil {
		return nil, fmt.Errorf("not a profile: %w", err)
	}
	var b bytes.Buffer
	z := c.zippers.Get().(*gzip.Writer)
	defer c.zippers.Put(z)
	z.Reset(&b)
	if _, err := z.Write(stamped); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return &item{labels: labels, gzipped: bytes.Clone(b.Bytes()), size: int64(len(profile)), time: at}, nil
}
