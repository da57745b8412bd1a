package services_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

// TestSymbolizerKilled kills the symbolizer, has a program profiled whose names nobody knows yet, and starts it again.
func TestSymbolizerKilled(t *testing.T) {
	server, symbolizer := startServer(t), startSymbolizer(t)
	agent := startAgent(t, server.url, symbolizer.url, "--interval", "2s")
	profile := func(service string, start func(*testing.T, string) workload) {
		t.Helper()
		w := start(t, service)
		w.GoOn()
		w.Await("^hold$")
		server.awaitTotal(t, service, fakegpu.Total(w.calls(t)).Alloc.Bytes)
	}
	train := func(t *testing.T, service string) workload { return startTrain(t, service, "v1") }
	profile("before", train)
	named := server.frames(t, "before")

	const stored = `msg="stored symbols".* build=(\S+)`
	builds := symbolizer.Said(stored)
	symbolizer.Kill()
	profile("without", startChain)
	var offsets []string
	for _, f := range server.frames(t, "without") {
		if regexp.MustCompile(`^(libchain_\w+\.so|chain)\+0x[0-9a-f]+$`).MatchString(f) {
			offsets = append(offsets, f)
		}
	}
	// As many return addresses as there are functions of its own, the recursion's two.
	if len(offsets) < 25 {
		t.Errorf("without a symbolizer %d frames by offset: %q", len(offsets), offsets)
	}
	if !agent.Running() || metric(t, agent.url, "vramprof_symbols_up", "") != 0 {
		t.Error("the agent has ended, or thinks that the symbolizer is up")
	}

	symbolizer.start(t)
	for attempt := 0; metric(t, agent.url, "vramprof_symbols_up", "") != 1; attempt++ {
		if attempt == 30 {
			t.Fatal("the agent has not come back to the symbolizer")
		}
		profile(fmt.Sprintf("attempt-%d", attempt), startChain) // new places to ask for
	}
	profile("after", startChain)
	wantChain(t, server, "after")
	profile("after-trainer", train)
	if got := server.frames(t, "after-trainer"); !slices.Equal(got, named) {
		t.Errorf("before the symbolizer was killed\n%q, after it is back\n%q", named, got)
	}

	// An agent with no memory of its own names everything from what the symbolizer kept.
	agent.Stop()
	startAgent(t, server.url, symbolizer.url, "--interval", "2s")
	profile("again", startChain)
	profile("again-trainer", train)
	wantChain(t, server, "again")
	if got := server.frames(t, "again-trainer"); !slices.Equal(got, named) {
		t.Errorf("before the symbolizer was killed\n%q, with another agent\n%q", named, got)
	}
	builds = append(builds, symbolizer.Said(stored)...)
	slices.Sort(builds)
	if once := slices.Compact(slices.Clone(builds)); len(once) != len(builds) || len(once) < 6 {
		t.Errorf("builds stored: %q, want each once, the interpreter's and the chain's among them", builds)
	}
}

// TestRestartKeepsProfiles kills the server and asks it again what it was asked.
func TestRestartKeepsProfiles(t *testing.T) {
	server, symbolizer := startServer(t), startSymbolizer(t)
	startAgent(t, server.url, symbolizer.url, "--interval", "2s")
	train := startTrain(t, "kept", "v2")
	train.GoOn()
	train.Await("^hold$")
	server.awaitTotal(t, "kept", fakegpu.Total(train.calls(t)).Alloc.Bytes)
	question := all("kept")
	before := mustAsk(t, server.querier().SelectMergeStacktraces, question)
	server.Kill()
	server.start(t)
	if after := mustAsk(t, server.querier().SelectMergeStacktraces, question); !proto.Equal(before, after) {
		t.Errorf("before the server was killed\n%v\nafter it was started again\n%v", before, after)
	}
	next := startChain(t, "next")
	next.GoOn()
	next.Await("^hold$")
	server.awaitTotal(t, "next", fakegpu.Total(next.calls(t)).Alloc.Bytes)
}

// TestServerSaysNo has the server refuse for a while, and then take everything.
func TestServerSaysNo(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int // 0: nothing listens
		code   string
		// Lost is the reason for which the profiles of the refusing time are dropped; without it they are delivered later.
		lost string
	}{
		{"internal error", http.StatusInternalServerError, "unknown", ""},
		{"bad gateway", http.StatusBadGateway, "unavailable", ""},
		{"unavailable", http.StatusServiceUnavailable, "unavailable", ""},
		{"too many requests", http.StatusTooManyRequests, "unavailable", ""},
		{"unauthorized", http.StatusUnauthorized, "unauthenticated", "unauthorized"},
		{"forbidden", http.StatusForbidden, "permission_denied", "unauthorized"},
		{"not found", http.StatusNotFound, "unimplemented", "refused"},
		{"away", 0, "unavailable", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, symbolizer := startServer(t), startSymbolizer(t)
			address, open := refusing(t, server.url, test.status)
			agent := startAgent(t, address, symbolizer.url, "--interval", "2s")
			service := strings.ReplaceAll(test.name, " ", "-")
			refused := startChain(t, service)
			refused.GoOn()
			refused.Await("^hold$")
			until(t, "refusal counted", func() bool {
				return metric(t, agent.url, "vramprof_push_attempts_total", `code="`+test.code+`"`) > 0
			})
			if test.lost != "" {
				until(t, "drop counted", func() bool {
					return metric(t, agent.url, "vramprof_push_dropped_profiles_total", `reason="`+test.lost+`"`) > 0
				})
			} else if metric(t, agent.url, "vramprof_push_waiting_profiles", "") == 0 {
				t.Error("no profile waits")
			}
			open()
			later := startChain(t, service+"-later")
			later.GoOn()
			later.Await("^hold$")
			server.awaitTotal(t, service+"-later", fakegpu.Total(later.calls(t)).Alloc.Bytes)
			if test.lost == "" {
				server.awaitTotal(t, service, fakegpu.Total(refused.calls(t)).Alloc.Bytes)
				if lost := metric(t, agent.url, "vramprof_push_dropped_profiles_total", `reason="[a-z_]+"`); lost != 0 {
					t.Errorf("%v profiles lost", lost)
				}
			}
		})
	}
}

// refusing is the address of a gateway before a server that answers everything with a status, or where nothing listens if
// that is 0, until it is opened.
func refusing(t *testing.T, target string, status int) (address string, open func()) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	var opened atomic.Bool
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if opened.Load() {
			proxy.ServeHTTP(w, r)
			return
		}
		http.Error(w, http.StatusText(status), status)
	}))
	if status != 0 {
		gateway.Start()
		t.Cleanup(gateway.Close)
		return gateway.URL, func() { opened.Store(true) }
	}
	free := gateway.Listener.Addr().String()
	if err := gateway.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + free, func() {
		opened.Store(true)
		if gateway.Listener, err = net.Listen("tcp", free); err != nil {
			t.Fatal(err)
		}
		gateway.Start()
		t.Cleanup(gateway.Close)
	}
}
