package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/vramprof/vramprof/agent/push"
)

func TestPush(t *testing.T) {
	s := &server{}
	h := httptest.NewServer(http.StripPrefix("/base", s))
	defer h.Close()
	c, err := push.New(push.Options{URL: h.URL + "/base/", User: "42", Password: "secret", Tenant: "ml", Headers: map[string]string{"X-Extra": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for range 2 {
		if err := c.Push(push.Profile{Labels: map[string]string{"service_name": "chat", "gpu-model": "H200"}, Time: at, Pprof: profileOf(t, 3)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.sum() != 6 || len(s.took) != 2 {
		t.Fatalf("took %d profiles of %d", len(s.took), s.sum())
	}
	if got, want := fmt.Sprint(s.series[0]), "map[__name__:gpu gpu_model:H200 service_name:chat]"; got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
	times := []int64{s.took[0].TimeNanos, s.took[1].TimeNanos}
	slices.Sort(times)
	if times[0] != at.UnixNano() || times[1] != at.UnixNano()+1 {
		t.Errorf("times %v of two profiles of %d", times, at.UnixNano())
	}
	r := http.Request{Header: s.requests[0].header}
	if user, password, ok := r.BasicAuth(); !ok || user != "42" || password != "secret" || r.Header.Get("X-Scope-OrgID") != "ml" || r.Header.Get("X-Extra") != "1" {
		t.Errorf("headers %v", r.Header)
	}
	if err := c.Push(push.Profile{Time: at, Pprof: profileOf(t, 1)}); !errors.Is(err, push.ErrClosed) {
		t.Errorf("push after close: %v", err)
	}
}

func TestPushesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.script = func(int, *http.Request) response { time.Sleep(500 * time.Millisecond); return response{} }
		start := time.Now()
		for i := range 320 {
			b.push(t, fmt.Sprint(i), start, 1)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); b.sum() != 320 || took != 5*time.Second {
			t.Errorf("%d of 320 in %v, 32 at a time", b.sum(), took)
		}
	})
}

// One profile, and what a server may answer before it takes it.
func TestB35Answers(t *testing.T) {
	const pyroscope429 = "rate limit exceeded: 4 MiB per second"
	text := func(status int, body string) response { return response{status: status, body: body} }
	for _, row := range []struct {
		name     string
		first    response // to every request, but as times says
		times    int      // how often it is given; 0: always
		attempts int
		reason   push.Reason   // why the profile was dropped; empty: taken
		took     time.Duration // until the last request
	}{
		{"taken", response{}, 0, 1, "", 0},
		{"unavailable", coded(503, connect.CodeUnavailable, "no ring"), 3, 4, "", 7 * time.Second},
		{"deadline_exceeded", coded(504, connect.CodeDeadlineExceeded, "slow"), 1, 2, "", time.Second},
		{"aborted", coded(409, connect.CodeAborted, "again"), 1, 2, "", time.Second},
		{"resource_exhausted", coded(429, connect.CodeResourceExhausted, pyroscope429), 5, 6, "", 31 * time.Second},
		{"resource_exhausted for an hour", coded(429, connect.CodeResourceExhausted, pyroscope429), 0, 124, push.Expired, 3571 * time.Second},
		{"internal a few times", coded(500, connect.CodeInternal, "oops"), 4, 5, "", 30 * time.Second},
		{"internal for ever", coded(500, connect.CodeInternal, "oops"), 0, 5, push.ServerError, 30 * time.Second},
		{"unknown", coded(500, connect.CodeUnknown, "oops"), 0, 5, push.ServerError, 30 * time.Second},
		{"undecodable", coded(500, connect.CodeUnknown, "proto: illegal wireType 7"), 0, 1, push.Refused, 0},
		{"invalid_argument", coded(400, connect.CodeInvalidArgument, "profile series contains an invalid label"), 0, 1, push.Refused, 0},
		{"too old", coded(400, connect.CodeInvalidArgument, "profile with labels '{}' is outside of ingestion window"), 0, 1, push.Expired, 0},
		{"unauthenticated", coded(401, connect.CodeUnauthenticated, "no org id"), 0, 1, push.Unauthorized, 0},
		{"permission_denied", coded(403, connect.CodePermissionDenied, "no"), 0, 1, push.Unauthorized, 0},
		{"unimplemented", coded(501, connect.CodeUnimplemented, "no"), 0, 1, push.Refused, 0},
		{"gateway 429", text(429, "slow down"), 1, 2, "", time.Second},
		{"gateway 429 with Retry-After", response{status: 429, header: map[string]string{"Retry-After": "50"}}, 1, 2, "", 55 * time.Second},
		{"429 with Retry-After", withHeader(coded(429, connect.CodeResourceExhausted, pyroscope429), "Retry-After", "50"), 1, 2, "", 55 * time.Second},
		{"Retry-After shorter than the pause", response{status: 503, header: map[string]string{"Retry-After": "1"}}, 3, 4, "", 7100 * time.Millisecond},
		{"Retry-After without measure", response{status: 503, header: map[string]string{"Retry-After": "99999999999"}}, 1, 2, "", 330 * time.Second},
		{"Retry-After that is none", response{status: 503, header: map[string]string{"Retry-After": "soon"}}, 1, 2, "", time.Second},
		{"gateway 502", text(502, "<html>"), 2, 3, "", 3 * time.Second},
		{"gateway 500", text(500, "<html>"), 0, 5, push.ServerError, 30 * time.Second},
		{"gateway 404", text(404, "not here"), 0, 1, push.Refused, 0},
		{"gateway 401", text(401, "who?"), 0, 1, push.Unauthorized, 0},
		{"422 that is a rate limit", text(422, "tenant: Rate limit reached"), 1, 2, "", time.Second},
		{"422", text(422, "no"), 0, 1, push.Refused, 0},
		{"200 that is something else", text(200, "<html>"), 0, 5, push.ServerError, 30 * time.Second},
		{"stalls", response{do: stall}, 1, 2, "", 11 * time.Second},
		{"closes", response{do: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}, 2, 3, "", 3 * time.Second},
		{"closes in the middle of the answer", response{do: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}}, 6, 7, "", 61 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil)
				b.script = func(n int, _ *http.Request) response {
					if row.times == 0 || n < row.times {
						return row.first
					}
					return response{}
				}
				start := time.Now()
				b.push(t, "chat", start, 10)
				time.Sleep(2 * time.Hour)
				if got := b.count(); got != row.attempts {
					t.Errorf("%d attempts, want %d", got, row.attempts)
				}
				if took := b.requests[len(b.requests)-1].at.Sub(start); took != row.took {
					t.Errorf("last attempt after %v, want %v", took, row.took)
				}
				if row.reason != "" {
					if got := b.metric(t, "dropped_profiles_total", string(row.reason)); got != 1 {
						t.Errorf("%v dropped as %s", got, row.reason)
					}
				} else if len(b.took) != 1 || b.took[0].TimeNanos != start.UnixNano() {
					t.Errorf("took %v, pushed at %d", b.took, start.UnixNano())
				}
				b.accounted(t, 1)
			})
		})
	}
}

func withHeader(r response, k, v string) response { r.header[k] = v; return r }

func TestRetryAfterDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		start := time.Now()
		b.script = func(n int, _ *http.Request) response {
			if n == 0 {
				return response{status: 503, header: map[string]string{"Retry-After": start.Add(40 * time.Second).UTC().Format(http.TimeFormat)}}
			}
			return response{}
		}
		b.push(t, "chat", start, 1)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.requests[1].at.Sub(start); got < 40*time.Second {
			t.Errorf("tried after %v, asked for 40s", got)
		}
	})
}

// Bug B35: a server that is away is asked seldom, by one profile at a time, and is given all once it is back.
func TestB35Outage(t *testing.T) {
	for _, away := range []response{{status: 503}, coded(429, connect.CodeResourceExhausted, "rate limit"), {do: stall}} {
		t.Run(fmt.Sprint(away.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil)
				start := time.Now()
				b.script = func(int, *http.Request) response {
					if time.Since(start) < 30*time.Minute {
						return away
					}
					return response{}
				}
				const services, intervals = 6, 120
				for i := range intervals {
					for s := range services {
						b.push(t, fmt.Sprint(s), start.Add(time.Duration(i)*15*time.Second), 1)
					}
					time.Sleep(15 * time.Second)
				}
				if got := b.count(); got > 32+30*60/15 {
					t.Errorf("%d requests in 30 minutes of outage", got)
				}
				time.Sleep(time.Minute)
				if sent, _, _ := b.accounted(t, services*intervals); sent != services*intervals || b.sum() != int64(sent) {
					t.Errorf("%d sent, %d in them, of %d", sent, b.sum(), services*intervals)
				}
			})
		})
	}
}

// What is older than the server takes is dropped, and the rest is delivered.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		start := time.Now()
		b.script = func(int, *http.Request) response {
			if time.Since(start) < 2*time.Hour {
				return response{status: 503}
			}
			return response{}
		}
		for range 180 {
			b.push(t, "chat", time.Now(), 1)
			time.Sleep(time.Minute)
		}
		sent, waiting, dropped := b.accounted(t, 180)
		if waiting != 0 || dropped != int(b.metric(t, "dropped_profiles_total", "expired")) || sent < 115 || sent > 121 {
			t.Errorf("%d sent, %d waiting, %d dropped", sent, waiting, dropped)
		}
		for i, p := range b.took {
			if age := b.requests[len(b.requests)-len(b.took)+i].at.UnixNano() - p.TimeNanos; age > int64(time.Hour) {
				t.Errorf("sent at the age of %v", time.Duration(age))
			}
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 256 << 10
		b := newBed(t, func(o *push.Options) { o.QueueBytes = most })
		start := time.Now()
		b.script = func(int, *http.Request) response {
			if time.Since(start) < 30*time.Minute {
				return response{status: 503}
			}
			return response{}
		}
		for i := range 1000 {
			b.push(t, "chat", start.Add(time.Duration(i)), 100)
			if got := b.metric(t, "queue_memory_bytes"); got > most {
				t.Fatalf("%v bytes in the queue", got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Minute)
		sent, _, dropped := b.accounted(t, 1000)
		if sent == 0 || dropped != int(b.metric(t, "dropped_profiles_total", "queue_full")) {
			t.Fatalf("%d sent, %d dropped", sent, dropped)
		}
		oldest := start.UnixNano() + int64(1000-sent)
		for _, p := range b.took {
			if p.TimeNanos < oldest {
				t.Errorf("profile %d is delivered, and newer ones were dropped", p.TimeNanos-start.UnixNano())
			}
		}
	})
}

// A profile on which the server fails costs no other.
func TestPoisonedProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.script = func(_ int, r *http.Request) response {
			body, err := io.ReadAll(r.Body)
			if err != nil || strings.Contains(string(body), "poison") {
				return response{status: 500}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			return response{}
		}
		for i := range 50 {
			service := fmt.Sprint(i)
			if i%10 == 0 {
				service = "poison" + service
			}
			b.push(t, service, time.Now(), 1)
		}
		time.Sleep(10 * time.Minute)
		if sent, _, _ := b.accounted(t, 50); sent != 45 || b.metric(t, "dropped_profiles_total", "server_error") != 5 {
			t.Errorf("%d sent of 45", sent)
		}
	})
}

func TestB34RefusedForItsSize(t *testing.T) {
	small := func(r *http.Request) bool { return r.ContentLength < 30_000 }
	for _, row := range []struct {
		name    string
		answer  response
		samples int
		sent    int
		dropped int
	}{
		{"max_profile_size_byte", coded(400, connect.CodeInvalidArgument, "the profile with labels '{}' exceeds the size limit (max_profile_size_byte, actual: 2, limit: 1)"), 4000, 2, 0},
		{"samples", coded(400, connect.CodeInvalidArgument, "the profile with labels '{}' exceeds the samples count limit (max_profile_stacktrace_samples, actual: 2, limit: 1)"), 4000, 2, 0},
		{"gateway", response{status: 413}, 4000, 2, 0},
		{"over the tenant's burst", coded(429, connect.CodeResourceExhausted, "ingestion rate limit (4 MiB) exceeded while adding 2.9 MiB"), 4000, 2, 0},
		{"halves too large", response{status: 413}, 10_000, 0, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil)
				b.script = func(_ int, r *http.Request) response {
					if small(r) {
						return response{}
					}
					return row.answer
				}
				b.push(t, "chat", time.Now(), row.samples)
				time.Sleep(10 * time.Minute)
				sent, _, dropped := b.accounted(t, 2)
				if sent != row.sent || dropped != row.dropped || sent > 0 && b.sum() != int64(row.samples) {
					t.Fatalf("%d sent with %d, %d dropped", sent, b.sum(), dropped)
				}
				if sent == 2 && b.took[0].TimeNanos == b.took[1].TimeNanos {
					t.Error("both halves have one time: the server loses one")
				}
			})
		})
	}
}

func TestNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *push.Options) { o.MaxBytes = 1000 })
		for _, row := range []struct {
			pprof  []byte
			reason push.Reason
		}{
			{profileOf(t, 1000), push.TooLarge},
			{[]byte("not a profile"), push.Malformed},
			{nil, push.Malformed},
		} {
			if err := b.Client.Push(push.Profile{Time: time.Now(), Pprof: row.pprof}); err == nil {
				t.Errorf("%s: no error", row.reason)
			}
		}
		if b.metric(t, "dropped_profiles_total", "malformed") != 2 || b.metric(t, "dropped_profiles_total", "too_large") != 1 {
			t.Error("not counted")
		}
		b.accounted(t, 3)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.script = func(n int, _ *http.Request) response {
			if n == 0 {
				return response{status: 503}
			}
			return response{do: stall}
		}
		for i := range 10 {
			b.push(t, fmt.Sprint(i), time.Now(), 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		err := b.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "10 profiles not delivered to http://pyroscope:4040/base") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		if b.accounted(t, 10); b.metric(t, "dropped_profiles_total", "shutdown") != 10 {
			t.Error("not counted")
		}
	})
}

// Whatever a server answers, nothing is lost without being counted, and nothing is sent twice that was taken.
func TestEverythingIsAccountedFor(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			b := newBed(t, func(o *push.Options) { o.QueueBytes = 20_000 })
			b.script = func(int, *http.Request) response {
				b.mu.Lock()
				n := random.IntN(12)
				b.mu.Unlock()
				return []response{
					{status: 503}, {status: 413}, {status: 400}, {do: stall}, coded(429, connect.CodeResourceExhausted, "rate limit"),
					coded(500, connect.CodeInternal, "oops"), {}, {}, {}, {}, {}, {},
				}[n]
			}
			taken := 0
			for range 300 {
				b.push(t, "chat", time.Now(), 1) // one sample: it cannot be halved
				taken++
				b.mu.Lock()
				d := time.Duration(random.IntN(2000)) * time.Millisecond
				b.mu.Unlock()
				time.Sleep(d)
				b.accounted(t, taken)
			}
			time.Sleep(2 * time.Hour)
			sent, waiting, _ := b.accounted(t, taken)
			if waiting != 0 || sent != len(b.took) {
				t.Errorf("%d waiting, %d sent, %d taken by the server", waiting, sent, len(b.took))
			}
			times := map[int64]bool{}
			for _, p := range b.took {
				times[p.TimeNanos] = true
			}
			if len(times) != len(b.took) {
				t.Errorf("%d profiles have %d times", len(b.took), len(times))
			}
		})
	}
}
