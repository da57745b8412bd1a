package push_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	pprof "github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/agent/push"
)

// server is a push.v1 server that keeps what it takes, and answers by a script before that.
type server struct {
	once     sync.Once
	handler  http.Handler
	mu       sync.Mutex
	script   func(n int, r *http.Request) response // of the n-th request, from 0; nil: takes all
	requests []request
	took     []*pprof.Profile
	series   []map[string]string
}

type request struct {
	at     time.Time
	header http.Header
}

// response is what the script says; the zero response is to take the profile.
type response struct {
	status int
	header map[string]string
	body   string
	do     func(http.ResponseWriter, *http.Request) // instead
}

// coded is an error of the protocol.
func coded(status int, code connect.Code, message string) response {
	return response{status: status, header: map[string]string{"Content-Type": "application/json"}, body: fmt.Sprintf(`{"code":%q,"message":%q}`, code, message)}
}

func stall(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the server notices that the client is gone only then
	<-r.Context().Done()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, request{time.Now(), r.Header.Clone()})
	script := s.script
	s.mu.Unlock()
	if script != nil {
		switch out := script(n, r); {
		case out.do != nil:
			out.do(w, r)
			return
		case out.status != 0:
			for k, v := range out.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(out.status)
			_, _ = io.WriteString(w, out.body)
			return
		}
	}
	s.once.Do(func() { _, s.handler = pushv1connect.NewPusherServiceHandler(s) })
	s.handler.ServeHTTP(w, r)
}

// Push implements pushv1connect.PusherServiceHandler.
func (s *server) Push(_ context.Context, r *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	if n := len(r.Msg.Series); n != 1 || len(r.Msg.Series[0].Samples) != 1 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d series", n))
	}
	p, err := decode(r.Msg.Series[0].Samples[0].RawProfile)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnknown, err)
	}
	labels := map[string]string{}
	for _, l := range r.Msg.Series[0].Labels {
		labels[l.Name] = l.Value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.series = append(s.took, p), append(s.series, labels)
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func decode(gzipped []byte) (*pprof.Profile, error) {
	z, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return pprof.ParseUncompressed(raw)
}

func (s *server) sum() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.took {
		for _, sample := range p.Sample {
			sum += sample.Value[0]
		}
	}
	return sum
}

func (s *server) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.requests) }

// pipes is a listener and the dialer to it, in memory, so that a test's clock can stand still meanwhile.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.connections <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bed is a client and its server, inside a synctest bubble.
type bed struct {
	*push.Client
	*server
	metrics *prometheus.Registry
}

func newBed(t *testing.T, change func(*push.Options)) *bed {
	t.Helper()
	b := &bed{server: &server{}, metrics: prometheus.NewRegistry()}
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100}
	h := &http.Server{Handler: http.StripPrefix("/base", b.server), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	served := make(chan error)
	go func() { served <- h.Serve(l) }()
	o := push.Options{
		URL: "http://pyroscope:4040/base/", HTTP: &http.Client{Transport: transport}, Registerer: b.metrics, Logger: slog.New(slog.DiscardHandler),
		Random: func() float64 { return 1 },
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.Client, err = push.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.Close(ended) // what is left is of no interest
		transport.CloseIdleConnections()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return b
}

// push pushes a profile of a series, of so many samples of one byte each.
func (b *bed) push(t *testing.T, service string, at time.Time, samples int) {
	t.Helper()
	if err := b.Client.Push(push.Profile{Labels: map[string]string{"service_name": service}, Time: at, Pprof: profileOf(t, samples)}); err != nil {
		t.Fatal(err)
	}
}

func profileOf(t testing.TB, samples int) []byte {
	t.Helper()
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "gpu_alloc_bytes", Unit: "bytes"}}, PeriodType: &pprof.ValueType{Type: "gpu", Unit: "bytes"}, Period: 1,
		Mapping: []*pprof.Mapping{{ID: 1, File: "a.out", HasFunctions: true}},
	}
	for i := range samples {
		f := &pprof.Function{ID: uint64(i + 1), Name: fmt.Sprint("function ", i)}
		l := &pprof.Location{ID: uint64(i + 1), Mapping: p.Mapping[0], Line: []pprof.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{1}})
	}
	var raw bytes.Buffer
	if err := p.WriteUncompressed(&raw); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

// metric gives a metric's value, for a label value if it has a label.
func (b *bed) metric(t *testing.T, name string, label ...string) float64 {
	t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "vramprof_push_"+name && (len(label) == 0 || m.GetLabel()[0].GetValue() == label[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %v", name, label)
	return 0
}

// accounted fails the test unless every profile that was taken is sent, waiting or dropped.
func (b *bed) accounted(t *testing.T, taken int) (sent, waiting, dropped int) {
	t.Helper()
	synctest.Wait() // nothing moves while the counters are read
	sent, waiting = int(b.metric(t, "sent_profiles_total")), int(b.metric(t, "waiting_profiles"))
	for _, r := range []push.Reason{push.QueueFull, push.Expired, push.TooLarge, push.Malformed, push.Refused, push.Unauthorized, push.ServerError, push.Shutdown} {
		dropped += int(b.metric(t, "dropped_profiles_total", string(r)))
	}
	if sent+waiting+dropped != taken {
		t.Errorf("%d sent + %d waiting + %d dropped, of %d", sent, waiting, dropped, taken)
	}
	return sent, waiting, dropped
}
