package symbols

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
)

// Result is how an upload ended. It is a metric label.
type Result string

// The results.
const (
	Stored   Result = "stored"
	Known    Result = "known"     // the service had got it meanwhile
	NoSource Result = "no_source" // the file cannot be read
	TooLarge Result = "too_large"
	Refused  Result = "refused"
	Failed   Result = "failed" // on the way; it is tried again
)

// chunk is the number of bytes of a file in one message.
const chunk = 256 << 10

// startUpload uploads a file on the side, unless that is going on, or was done since the service was asked.
func (c *Client) startUpload(o object, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uploads[o] != nil || c.ctx.Err() != nil || c.known(o) {
		return
	}
	done := make(chan struct{})
	c.uploads[o] = done
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		result, size, err := c.upload(o.id, name)
		c.metrics.uploaded(NativeKind, result, 1)
		c.metrics.uploadedBytes.Add(float64(size))
		switch result {
		case Stored, Known:
			c.remember(o, "")
		default:
			c.remember(o, result)
			if c.ctx.Err() == nil {
				c.options.Logger.Warn("symbols not uploaded: frames of the file have addresses instead of names", "file", name, "build", o.id, "reason", result, "error", err)
			}
		}
		c.mu.Lock()
		delete(c.uploads, o)
		c.mu.Unlock()
		close(done)
	}()
}

func (c *Client) upload(build, name string) (Result, int64, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.UploadTimeout)
	defer cancel()
	w := &uploadWriter{
		stream: c.service.UploadObject(ctx), max: c.options.MaxObject,
		object: &symbolizerv1.Object{BuildId: build, Name: valid(name)},
	}
	buffered := bufio.NewWriterSize(w, chunk)
	err := c.options.Source.WriteObject(build, buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && w.err == nil {
		w.err = err
		err = fmt.Errorf("read the file: %w", err)
	}
	if w.err != nil && !errors.Is(w.err, io.EOF) {
		// an upload that is not whole must not be taken for one
		cancel()
		_, closing := w.stream.CloseAndReceive()
		switch {
		case errors.Is(w.err, errTooLarge):
			return TooLarge, w.size, fmt.Errorf("over %d bytes: %w", c.options.MaxObject, err)
		case w.failed:
			return Failed, w.size, errors.Join(err, closing)
		}
		return NoSource, w.size, err
	}
	// the service ends the stream of a file that it has or refuses; that is io.EOF here, and its answer says which
	response, err := w.stream.CloseAndReceive()
	switch {
	case err == nil && response.Msg.GetAlreadyPresent():
		return Known, w.size, nil
	case err == nil && w.err == nil:
		return Stored, w.size, nil
	case err != nil && permanent(err):
		return Refused, w.size, err
	}
	return Failed, w.size, errors.Join(w.err, err)
}

var errTooLarge = errors.New("the file's symbols are too large to upload")

// uploadWriter sends what is written to it, a message for each call.
type uploadWriter struct {
	stream *connect.ClientStreamForClient[symbolizerv1.UploadObjectRequest, symbolizerv1.UploadObjectResponse]
	object *symbolizerv1.Object // until the first message
	size   int64
	max    int64
	err    error
	failed bool // to send
}

func (w *uploadWriter) Write(b []byte) (int, error) {
	if w.err == nil && w.size+int64(len(b)) > w.max {
		w.err = errTooLarge
	}
	if w.err != nil {
		return 0, w.err
	}
	if w.err = w.stream.Send(&symbolizerv1.UploadObjectRequest{Object: w.object, Data: b}); w.err != nil {
		w.failed = true
		return 0, w.err
	}
	w.object = nil
	w.size += int64(len(b))
	return len(b), nil
}
