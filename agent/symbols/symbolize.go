package symbols

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

const (
	// maxBatch bounds the places of one call; the service takes 65,536.
	maxBatch = 10_000
	// expiry is how long a negative answer stands: somebody may upload a better file.
	expiry = 10 * time.Minute
)

// symbolize asks for the open places. forgotten tells that the service lacks what it once had.
func (c *Client) symbolize(ctx context.Context, q *question) (forgotten bool, _ error) {
	places := make([]place, 0, len(q.open))
	for _, kind := range q.places {
		for _, p := range kind {
			if q.open[p] {
				places = append(places, p)
				q.open[p] = false // listed
			}
		}
	}
	for _, p := range places {
		q.open[p] = true
	}
	for len(places) > 0 {
		n := min(len(places), maxBatch)
		f, err := c.batch(ctx, q, places[:n])
		forgotten = forgotten || f
		if err != nil {
			return forgotten, err
		}
		places = places[n:]
	}
	return forgotten, nil
}

// batch asks for some places: for half of them, if the service says that the answer is too large.
func (c *Client) batch(ctx context.Context, q *question, places []place) (forgotten bool, _ error) {
	request := &symbolizerv1.SymbolizeRequest{}
	index := map[object]uint32{}
	var order [kinds][]place
	for _, p := range places {
		at, ok := index[p.object]
		switch p.kind {
		case NativeKind:
			if !ok {
				at = uint32(len(request.Objects))
				request.Objects = append(request.Objects, q.message(p.object))
			}
			request.Native = append(request.Native, &symbolizerv1.NativeLocation{Object: at, Address: p.at})
		case PythonKind:
			if !ok {
				at = uint32(len(request.CodeDigests))
				request.CodeDigests = append(request.CodeDigests, []byte(p.id))
			}
			request.Python = append(request.Python, &symbolizerv1.PythonLocation{Code: at, Instruction: uint32(p.at)})
		}
		index[p.object] = at
		order[p.kind] = append(order[p.kind], p)
	}
	response, err := c.service.Symbolize(ctx, connect.NewRequest(request))
	if connect.CodeOf(err) == connect.CodeResourceExhausted && len(places) > 1 {
		half := len(places) / 2
		f, err := c.batch(ctx, q, places[:half])
		if err != nil {
			return f, err
		}
		forgotten, err = c.batch(ctx, q, places[half:])
		return f || forgotten, err
	}
	if err != nil {
		return false, fmt.Errorf("ask the symbolizer: %w", err)
	}
	for kind, answers := range [kinds][]*symbolizerv1.Location{response.Msg.GetNative(), response.Msg.GetPython()} {
		if len(answers) != len(order[kind]) {
			return false, fmt.Errorf("ask the symbolizer: %d answers to %d questions", len(answers), len(order[kind]))
		}
		for i, p := range order[kind] {
			forgotten = c.take(q, p, answers[i]) || forgotten
		}
	}
	return forgotten, nil
}

// take makes an answer known. It tells whether the place should be asked for again, after its object is uploaded again.
func (c *Client) take(q *question, p place, answer *symbolizerv1.Location) (forgotten bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := locationOf(answer)
	until := c.options.Now().Add(expiry)
	switch answer.GetStatus() {
	case symbolizerv1.Status_STATUS_RESOLVED:
		l.Outcome, until = Resolved, time.Time{}
	case symbolizerv1.Status_STATUS_NO_SYMBOL:
		l.Outcome = NoSymbol
	case symbolizerv1.Status_STATUS_MISSING:
		q.known[p] = Location{Outcome: Missing} // open: an upload may be on its way
		h, ok := c.holdings.Peek(p.object)
		if c.uploads[p.object] != nil || ok && h.refused != "" {
			return false
		}
		c.holdings.Remove(p.object)
		return true
	default:
		l = Location{Outcome: Unusable}
		c.options.Logger.Debug("the symbolizer cannot use an object", "object", q.message(p.object).String(), "reason", answer.GetReason())
	}
	c.cache.put(p, l, until)
	q.close(p, l)
	return false
}

func (q *question) message(o object) *symbolizerv1.Object {
	if o.kind == PythonKind {
		return &symbolizerv1.Object{Name: q.codes[o].QualName}
	}
	return &symbolizerv1.Object{BuildId: o.id, Name: valid(q.names[o])}
}
