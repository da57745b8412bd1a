package symbols

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1/symbolizerv1connect"
)

// Source gives the files that the service lacks.
type Source interface {
	// WriteObject writes what elfobj.Reduce makes of the file with the given identity. It ends with w's error, if w has one.
	WriteObject(buildID string, w io.Writer) error
}

// Options say whom to ask and how long. All but URL and Source have defaults.
type Options struct {
	// URL is the service's, as http://symbolizer:8089.
	URL    string
	Source Source
	// HTTP sends the requests; one of its own if nil.
	HTTP connect.HTTPClient
	// Deadline bounds one Resolve, uploads and all; 3 s if 0. An upload that takes longer goes on, and is waited for by
	// the next one.
	Deadline time.Duration
	// CacheBytes bounds the memory of the answers that are kept; 64 MiB if 0.
	CacheBytes int64
	// MaxObject bounds an upload in bytes; 1 GiB if 0.
	MaxObject int64
	// UploadTimeout bounds the upload of an object; 5 min if 0.
	UploadTimeout time.Duration
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
	// Now is the time; time.Now if nil.
	Now func() time.Time
	// Random gives a number in [0, 1), to spread tries; math/rand's if nil.
	Random func() float64
}

func (o Options) withDefaults() (Options, error) {
	if !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://") {
		return o, fmt.Errorf("symbolizer URL %q: give it as http://host:port or https://host:port", o.URL)
	}
	if o.Source == nil {
		return o, errors.New("symbolizer client: no source of objects given")
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	if o.Deadline == 0 {
		o.Deadline = 3 * time.Second
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MaxObject == 0 {
		o.MaxObject = 1 << 30
	}
	if o.UploadTimeout == 0 {
		o.UploadTimeout = 5 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o, nil
}

// Client asks one service. Its methods may be called from several goroutines.
type Client struct {
	options Options
	service symbolizerv1connect.SymbolizerServiceClient
	metrics *metrics
	ctx     context.Context // of uploads, which outlive the Resolve that began them
	cancel  context.CancelFunc
	running sync.WaitGroup
	slots   chan struct{} // for uploads of objects

	mu       sync.Mutex
	cache    *cache
	holdings *simplelru.LRU[object, holding]
	uploads  map[object]chan struct{} // closed at the end
	failures int                      // in a row
	tryAt    time.Time
}

const (
	// maxHoldings bounds the files and code objects of which is remembered that the service has them.
	maxHoldings = 1 << 17
	// maxUploads bounds the objects that are uploaded at a time.
	maxUploads = 2
	// maxAnswer bounds an answer in bytes: the service's own bound, and some.
	maxAnswer = 96 << 20
)

// New makes a client. Nothing is sent before the first Resolve.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		options: o,
		service: symbolizerv1connect.NewSymbolizerServiceClient(o.HTTP, strings.TrimSuffix(o.URL, "/"), connect.WithReadMaxBytes(maxAnswer)),
		slots:   make(chan struct{}, maxUploads),
		uploads: map[object]chan struct{}{},
	}
	if c.cache, err = newCache(o.CacheBytes); err != nil {
		return nil, fmt.Errorf("cache of names: %w", err)
	}
	if c.holdings, err = simplelru.NewLRU[object, holding](maxHoldings, nil); err != nil {
		return nil, fmt.Errorf("cache of names: %w", err)
	}
	if c.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("metrics of the symbolizer client: %w", err)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the uploads that are going on.
func (c *Client) Close() {
	c.cancel()
	c.running.Wait()
}

// Resolve names places, in the order given. It always answers, within the deadline.
func (c *Client) Resolve(ctx context.Context, native []Native, python []Python) ([]Location, []Location) {
	q := newQuestion(native, python)
	c.recall(q)
	if len(q.open) > 0 && c.mayTry() {
		within, cancel := context.WithTimeout(ctx, c.options.Deadline)
		err := c.ask(within, q)
		cancel()
		if ctx.Err() == nil {
			c.tried(err)
		}
	}
	natives, pythons := q.answer()
	c.metrics.count(natives, pythons)
	return natives, pythons
}

// recall takes from the cache what is there.
func (c *Client) recall(q *question) {
	now := c.options.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	hits := 0
	for p := range q.open {
		if l, ok := c.cache.get(p, now); ok {
			q.close(p, l)
			hits++
		}
	}
	c.metrics.recalled(hits, len(q.open), c.cache.lru.Len(), c.cache.size)
}

// ask offers the service what it lacks, and then asks it. A service that has lost what it had is offered that again, once.
func (c *Client) ask(ctx context.Context, q *question) error {
	for range 2 {
		if err := c.offer(ctx, q); err != nil {
			return err
		}
		forgotten, err := c.symbolize(ctx, q)
		if err != nil || !forgotten {
			return err
		}
	}
	return nil
}

// The pauses between tries of a service that does not answer begin at minPause and double. maxPause is less than the
// agent's interval, so that names are back in the first one after the service is.
const (
	minPause = 500 * time.Millisecond
	maxPause = 10 * time.Second
)

func (c *Client) mayTry() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.options.Now().Before(c.tryAt)
}

func (c *Client) tried(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.failures > 0 {
			c.options.Logger.Info("the symbolizer answers again", "url", c.options.URL)
		}
		c.failures = 0
		c.metrics.up.Set(1)
		return
	}
	if c.failures == 0 {
		c.options.Logger.Warn("the symbolizer does not answer: frames have addresses instead of names until it does", "url", c.options.URL, "error", err)
	}
	pause := min(minPause<<min(c.failures, 10), maxPause)
	c.failures++
	c.tryAt = c.options.Now().Add(pause/2 + time.Duration(c.options.Random()*float64(pause/2)))
	c.metrics.up.Set(0)
}
