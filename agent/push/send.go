package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
)

const (
	// maxFailures is how often a profile is tried on which the server fails.
	maxFailures = 5
	// crowdsToHalve is how often in a row a server may say that it wants less until the profile is taken for the reason: a
	// profile over a tenant's burst is refused with the same words as one too many (pkg/distributor, ingestion_burst_size_mb).
	crowdsToHalve = 4
	// minHalve is the smallest profile in bytes that is halved for that.
	minHalve = 64 << 10
)

// run begins attempts until the client is closed and nothing waits.
func (c *Client) run() {
	defer close(c.stopped)
	for {
		begun, at, done := c.begin()
		if done {
			return
		}
		if begun {
			continue
		}
		var timeout <-chan time.Time
		var timer *time.Timer
		if !at.IsZero() {
			timer = time.NewTimer(at.Sub(c.options.Now()))
			timeout = timer.C
		}
		select {
		case <-c.wake:
		case <-timeout:
		case <-c.ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// begin begins an attempt if there is one to make, or tells when there may be.
func (c *Client) begin() (begun bool, at time.Time, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil || c.closed && c.queue.items.Len() == 0 {
		return false, at, true
	}
	now := c.options.Now()
	if ok, at := c.pace.allows(now, c.options.Concurrency); !ok {
		return false, at, false
	}
	it, at := c.queue.next(now, c.options.MaxAge)
	if it == nil {
		return false, at, c.closed && c.queue.items.Len() == 0
	}
	it.sending = true
	c.pace.sending++
	c.sends.Add(1)
	generation := c.pace.generation
	go func() {
		defer c.sends.Done()
		a, err := c.attempt(it)
		c.settle(it, generation, judge(err, a, c.options.Now()), err, a)
	}()
	return true, at, false
}

// attempt sends a profile once.
func (c *Client) attempt(it *item) (answer, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.Timeout)
	defer cancel()
	var a answer
	_, err := c.service.Push(context.WithValue(ctx, answerKey{}, &a), connect.NewRequest(&pushv1.PushRequest{
		Series: []*pushv1.RawProfileSeries{{Labels: it.labels, Samples: []*pushv1.RawSample{{RawProfile: it.gzipped}}}},
	}))
	return a, err
}

// settle does what an attempt's verdict says.
func (c *Client) settle(it *item, generation int, v verdict, err error, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	c.pace.sending--
	it.sending = false
	c.metrics.attempt(err)
	if err != nil && c.ctx.Err() != nil {
		return // cut off by Close, which counts it
	}
	now := c.options.Now()
	if v.action != again || !v.crowd {
		it.crowds = 0
	}
	switch v.action {
	case sent:
		c.queue.remove(it)
		c.metrics.send(it.size)
		if c.pace.succeeded(generation) {
			c.options.Logger.Info("profiles are delivered again", "url", c.options.URL)
		}
	case again, limited:
		if c.pace.failed(generation, now, v.after, c.options.Random()) {
			c.options.Logger.Warn("profiles are not delivered; they wait and are tried again", "url", c.options.URL, "error", err, "answer", a.text)
		}
		if v.action == limited {
			if it.failures++; it.failures >= maxFailures {
				c.lose(it, ServerError, err, a)
				return
			}
			it.after = now.Add(pause(it.failures, c.options.Random()))
		}
		if v.crowd {
			if it.crowds++; it.crowds >= crowdsToHalve && !it.halved && it.size >= minHalve {
				c.halve(it)
			}
		}
	case halve:
		if it.halved || !c.halve(it) {
			c.lose(it, TooLarge, err, a)
		}
	case drop:
		c.lose(it, v.reason, err, a)
	}
}

func (c *Client) lose(it *item, r Reason, err error, a answer) {
	c.queue.drop(it, r)
	now := c.options.Now()
	if now.Sub(c.logged[r]) < time.Minute {
		return // the metric has them all
	}
	c.logged[r] = now
	c.options.Logger.Error("profile dropped", "url", c.options.URL, "reason", r, "error", err, "answer", a.text, "time", it.time, "bytes", it.size)
}

// halve puts two halves in the place of a profile, each with a time of its own.
func (c *Client) halve(it *item) bool {
	z, err := gzip.NewReader(bytes.NewReader(it.gzipped))
	if err != nil {
		return false
	}
	profile, err := io.ReadAll(z)
	if err != nil {
		return false
	}
	parts, ok := halves(profile)
	if !ok {
		return false
	}
	var items [2]*item
	for i, part := range parts {
		at := c.times.unique(key(it.labels), it.time)
		if items[i], err = c.newItem(it.labels, part, at); err != nil {
			return false
		}
		items[i].halved, items[i].after = true, it.after
	}
	c.queue.replace(it, items[:]...)
	return true
}

// transport adds what the options say to each request, and keeps of the answer what an RPC's error has not.
type transport struct{ options Options }

type answerKey struct{}

// maxText is how much is read of an answer that is not of the protocol.
const maxText = 4 << 10

// Do implements connect.HTTPClient.
func (t transport) Do(r *http.Request) (*http.Response, error) {
	for k, v := range t.options.Headers {
		r.Header.Set(k, v)
	}
	if t.options.User != "" || t.options.Password != "" {
		r.SetBasicAuth(t.options.User, t.options.Password)
	}
	if t.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+t.options.Token)
	}
	if t.options.Tenant != "" {
		r.Header.Set("X-Scope-OrgID", t.options.Tenant)
	}
	response, err := t.options.HTTP.Do(r)
	a, ok := r.Context().Value(answerKey{}).(*answer)
	if err != nil || !ok {
		return response, err
	}
	a.status, a.retryAfter = response.StatusCode, response.Header.Get("Retry-After")
	if a.status == http.StatusOK || strings.HasPrefix(response.Header.Get("Content-Type"), "application/") {
		return response, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxText))
	if err == nil {
		a.text = strings.ToValidUTF8(strings.TrimSpace(string(text)), "\uFFFD")
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), response.Body), response.Body}
	return response, nil
}
