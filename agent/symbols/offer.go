package symbols

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// holding is what is remembered of an object: the service has it, or, for a time, why it cannot be given to it.
type holding struct {
	refused Result
	until   time.Time
}

const (
	// refusedFor is how long an upload is not tried again that cannot succeed as things are.
	refusedFor = 30 * time.Minute
	// failedFor is how long an upload is not tried again that failed on its way.
	failedFor = 10 * time.Second
	// maxCodes bounds the bytes of code objects in one upload; the service takes messages of 32 MiB.
	maxCodes = 4 << 20
)

// offer asks which objects of open places the service lacks, and uploads those: code objects at once, files on the side. It
// returns when all that can be there is there, or when three quarters of the time are over.
func (c *Client) offer(ctx context.Context, q *question) error {
	wanted := q.wanted()
	unknown := c.unknown(wanted)
	for len(unknown) > 0 {
		n := min(len(unknown), maxBatch)
		missing, err := c.findMissing(ctx, q, unknown[:n])
		if err != nil {
			return err
		}
		unknown = unknown[n:]
		if err := c.uploadCodes(ctx, q, missing[PythonKind]); err != nil {
			return err
		}
		for _, o := range missing[NativeKind] {
			c.startUpload(o, q.names[o])
		}
	}
	c.await(ctx, wanted)
	return nil
}

// unknown gives the objects of which it is not known whether the service has them.
func (c *Client) unknown(objects []object) []object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []object
	for _, o := range objects {
		if c.uploads[o] == nil && !c.known(o) {
			out = append(out, o)
		}
	}
	return out
}

// known tells whether the service has an object, or is not to be asked yet after it refused it. mu is locked.
func (c *Client) known(o object) bool {
	h, ok := c.holdings.Get(o)
	return ok && (h.refused == "" || c.options.Now().Before(h.until))
}

// findMissing gives those of some objects that the service lacks, and remembers that it has the others.
func (c *Client) findMissing(ctx context.Context, q *question, objects []object) (missing [kinds][]object, _ error) {
	request := &symbolizerv1.FindMissingRequest{}
	for _, o := range objects {
		if o.kind == NativeKind {
			request.Objects = append(request.Objects, q.message(o))
		} else {
			request.CodeDigests = append(request.CodeDigests, []byte(o.id))
		}
	}
	response, err := c.service.FindMissing(ctx, connect.NewRequest(request))
	if err != nil {
		return missing, fmt.Errorf("ask the symbolizer what it lacks: %w", err)
	}
	lacks := map[object]bool{}
	for _, id := range response.Msg.GetBuildIds() {
		lacks[object{NativeKind, id}] = true
	}
	for _, d := range response.Msg.GetCodeDigests() {
		lacks[object{PythonKind, string(d)}] = true
	}
	for _, o := range objects {
		if lacks[o] {
			missing[o.kind] = append(missing[o.kind], o)
		} else {
			c.remember(o, "")
		}
	}
	return missing, nil
}

// remember notes that the service has an object, or why it has not got it.
func (c *Client) remember(o object, refused Result) {
	h := holding{refused: refused, until: c.options.Now().Add(refusedFor)}
	if refused == Failed {
		h.until = c.options.Now().Add(failedFor)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdings.Add(o, h)
}

func (c *Client) uploadCodes(ctx context.Context, q *question, objects []object) error {
	for len(objects) > 0 {
		size, n := 0, 0
		request := &symbolizerv1.UploadCodeRequest{}
		for ; n < len(objects); n++ {
			code := q.codes[objects[n]].message()
			if size += proto.Size(code); n > 0 && size > maxCodes {
				break
			}
			request.Codes = append(request.Codes, code)
		}
		if err := c.uploadBatch(ctx, objects[:n], request.Codes); err != nil {
			return err
		}
		objects = objects[n:]
	}
	return nil
}

// uploadBatch uploads code objects. If one of them is at fault it tries each half, so that it costs no other its name.
func (c *Client) uploadBatch(ctx context.Context, objects []object, codes []*symbolizerv1.PythonCode) error {
	_, err := c.service.UploadCode(ctx, connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: codes}))
	switch {
	case err == nil:
		for _, o := range objects {
			c.remember(o, "")
		}
		c.metrics.uploaded(PythonKind, Stored, len(objects))
		return nil
	case !permanent(err):
		c.metrics.uploaded(PythonKind, Failed, len(objects))
		return fmt.Errorf("upload code objects to the symbolizer: %w", err)
	case len(objects) == 1 || connect.CodeOf(err) != connect.CodeInvalidArgument:
		c.options.Logger.Warn("the symbolizer refuses code objects: their frames have no lines", "count", len(codes), "first", codes[0].GetQualname(), "error", err)
		c.metrics.uploaded(PythonKind, Refused, len(objects))
		for _, o := range objects {
			c.remember(o, Refused)
		}
		return nil
	}
	half := len(objects) / 2
	if err := c.uploadBatch(ctx, objects[:half], codes[:half]); err != nil {
		return err
	}
	return c.uploadBatch(ctx, objects[half:], codes[half:])
}

// permanent tells whether the same upload would be refused again.
func permanent(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeUnimplemented,
		connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeResourceExhausted:
		return true
	}
	return false
}

// await waits for the uploads of some objects, and leaves a quarter of the time for what comes after.
func (c *Client) await(ctx context.Context, objects []object) {
	var timeout <-chan time.Time
	if end, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(end) * 3 / 4)
		defer timer.Stop()
		timeout = timer.C
	}
	for _, o := range objects {
		c.mu.Lock()
		done := c.uploads[o]
		c.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}
