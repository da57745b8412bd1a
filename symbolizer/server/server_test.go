package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/symbolizer/server"
)

// backend answers with what a test gives it, for objects and code objects alike.
type backend struct {
	err  error
	name string
}

func (backend) Wants(string) bool    { return true }
func (backend) Complete(string) bool { return false }
func (backend) Has([]byte) bool      { return false }

type objects struct{ backend }

func (b objects) Add(string, io.ReaderAt, int64) (uint64, bool, error) { return 1, true, b.err }

func (b objects) Symbolize(_ string, addresses []uint64, answer func(int, []*symbolizerv1.Line)) error {
	for i := range addresses {
		if b.err != nil {
			return b.err
		}
		answer(i, []*symbolizerv1.Line{{Function: b.name}})
	}
	return nil
}

type codes struct{ backend }

func (b codes) Add([]*symbolizerv1.PythonCode) (int, error) { return 1, b.err }

func (b codes) Symbolize(_ []byte, instructions []uint32, answer func(int, *symbolizerv1.Line)) error {
	for i := range instructions {
		if b.err != nil {
			return b.err
		}
		answer(i, &symbolizerv1.Line{Function: b.name})
	}
	return nil
}

func newServer(b backend) *server.Server {
	spool := func() (server.Spool, error) { return nil, errors.New("no spool in this test") }
	return server.New(objects{b}, codes{b}, func(string) error { return nil }, spool, server.Limits{MaxObject: 1 << 20, MaxLocations: 1 << 20}, slog.New(slog.DiscardHandler))
}

func both(n int) *connect.Request[symbolizerv1.SymbolizeRequest] {
	r := &symbolizerv1.SymbolizeRequest{Objects: []*symbolizerv1.Object{{BuildId: "gnu:00"}}, CodeDigests: [][]byte{make([]byte, 32)}}
	for range n {
		r.Native, r.Python = append(r.Native, &symbolizerv1.NativeLocation{}), append(r.Python, &symbolizerv1.PythonLocation{})
	}
	return connect.NewRequest(r)
}

func TestStatusOfFailure(t *testing.T) {
	for _, test := range []struct {
		name   string
		err    error
		status symbolizerv1.Status
		reason string
	}{
		{"none", nil, symbolizerv1.Status_STATUS_RESOLVED, ""},
		{"absent", fmt.Errorf("open: %w", fs.ErrNotExist), symbolizerv1.Status_STATUS_MISSING, "not uploaded yet"},
		{"unreadable", errors.New("the disk broke"), symbolizerv1.Status_STATUS_UNUSABLE, "the disk broke"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(backend{err: test.err, name: "f"})
			r, err := s.Symbolize(t.Context(), both(2))
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range append(r.Msg.Native, r.Msg.Python...) {
				if l.GetStatus() != test.status || l.GetReason() != test.reason {
					t.Errorf("%v", l)
				}
			}
			counted := uint64(0)
			s.Counts(func(_ server.LocationKind, status symbolizerv1.Status, n uint64) {
				if counted += n; n > 0 && status != test.status {
					t.Errorf("%d counted as %v", n, status)
				}
			}, func(server.Kind, server.Result, uint64) {})
			if counted != 4 {
				t.Errorf("%d counted of 4", counted)
			}
		})
	}
}

func TestAnswerIsBounded(t *testing.T) {
	s := newServer(backend{name: strings.Repeat("n", 1<<20)})
	if _, err := s.Symbolize(t.Context(), both(60)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("120 MB of names: %v", err)
	}
	if _, err := s.Symbolize(t.Context(), both(30)); err != nil {
		t.Errorf("60 MB of names: %v", err)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newServer(backend{name: "f"}).Symbolize(ctx, both(1)); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("%v", err)
	}
}

func TestCodeOfFailure(t *testing.T) {
	for _, test := range []struct {
		name   string
		err    error
		code   connect.Code
		result server.Result
	}{
		{"none", nil, 0, server.Stored},
		{"full disk", fmt.Errorf("append: %w", syscall.ENOSPC), connect.CodeResourceExhausted, server.Failed},
		{"quota", fmt.Errorf("append: %w", syscall.EDQUOT), connect.CodeResourceExhausted, server.Failed},
		{"another", errors.New("the disk broke"), connect.CodeInternal, server.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(backend{err: test.err})
			_, err := s.UploadCode(t.Context(), connect.NewRequest(&symbolizerv1.UploadCodeRequest{Codes: []*symbolizerv1.PythonCode{{MinorVersion: 11}}}))
			if (err == nil) != (test.code == 0) || err != nil && connect.CodeOf(err) != test.code {
				t.Errorf("%v", err)
			}
			s.Counts(func(server.LocationKind, symbolizerv1.Status, uint64) {}, func(k server.Kind, r server.Result, n uint64) {
				if want := k == server.Code && r == test.result; (n == 1) != want {
					t.Errorf("%d uploads of %v counted as %v", n, k, r)
				}
			})
		})
	}
}
