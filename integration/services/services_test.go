package services_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ianlancetaylor/demangle"

	"github.com/vramprof/vramprof/integration/fakegpu"
)

const mib = 1 << 20

// TestThreeProcesses is the main job as a fleet has it, with the interval that agents have unasked. The allocations are made
// just after the agent has read an interval, so that they wait for nearly all of the next: nothing takes longer.
func TestThreeProcesses(t *testing.T) {
	const interval, limit = 15 * time.Second, 20 * time.Second
	server, symbolizer := startServer(t), startSymbolizer(t)
	startAgent(t, server.url, symbolizer.url)
	service := "trainer-of-three"
	of := func(version string) string {
		return `{service_name="` + unique(service) + `", version="` + version + `"}`
	}
	versions := map[string]workload{"v1": startTrain(t, service, "v1"), "v2": startTrain(t, service, "v2")}
	time.Sleep(time.Until(time.Now().Truncate(interval).Add(interval + time.Second))) // the clock is what is awaited
	loaded := map[string]int64{}                                                      // the models, which were there before the call that is timed
	for version, w := range versions {
		loaded[version] = int64(fakegpu.Total(w.calls(t)).Alloc.Bytes)
		server.awaitTotal(t, of(version), uint64(loaded[version]))
	}
	called := time.Now()
	for _, w := range versions {
		w.GoOn()
	}
	until(t, "profile", func() bool {
		return server.graph(t, of("v1")).GetTotal() > loaded["v1"] && server.graph(t, of("v2")).GetTotal() > loaded["v2"]
	})
	took := time.Since(called)
	t.Logf("from the call to the answer of the server: %v, of which at most %v is the rest of the interval", took.Round(time.Millisecond), interval-time.Second)
	if took > limit {
		t.Errorf("an allocation was answered after %v, want %v", took, limit)
	}

	for version, w := range versions {
		w.Await("^hold$")
		calls := w.calls(t)
		server.awaitTotal(t, of(version), fakegpu.Total(calls).Alloc.Bytes)
		for memory, truth := range fakegpu.Sum(calls) {
			server.awaitTotal(t, `{service_name="`+unique(service)+`", version="`+version+`", memory="`+memory+`", api="cuda"}`, truth.Alloc.Bytes)
		}
	}
	for _, labels := range server.labels(t, service, "service_name", "version", "memory", "api") {
		if labels["service_name"] != unique(service) || versions[labels["version"]].Process == nil || labels["memory"] == "" || labels["api"] != "cuda" {
			t.Errorf("labels %v", labels)
		}
	}

	frames := server.frames(t, service)
	for _, want := range []string{
		"<module>", "main", "Trainer.step", "Model.forward", "Attention.forward", "Optimizer.step", "gather.<locals>.from_c", "unpack",
		"größe_anpassen", "fused_kernel", "FeatureCache.remember", "call_back", "cuMemAlloc_v2", "cuMemAllocAsync",
	} {
		if !slices.Contains(frames, want) && !slices.Contains(frames, want[strings.LastIndexByte(want, '.')+1:]) {
			t.Errorf("no %s among the frames\n%s", want, strings.Join(frames, "\n"))
		}
	}
	wantWhole(t, frames)

	// The cache of v2 keeps 12, 13 and 14 MiB, and nothing else differs.
	grown := server.grown(t, of("v1"), of("v2"))
	names := map[string]bool{}
	for _, g := range grown {
		names[g.name] = true
		if g.after-g.before != (12+13+14)*mib {
			t.Errorf("%s grew from %d to %d bytes, want by 39 MiB", g.name, g.before, g.after)
		}
	}
	if remember := (growth{"FeatureCache.remember", 0, 39 * mib}); !slices.Contains(grown, remember) && !slices.Contains(grown, growth{"remember", 0, 39 * mib}) {
		t.Errorf("grown: %v, want %v among them", grown, remember)
	}
	if names["Model.forward"] || names["forward"] || !names["main"] {
		t.Errorf("grown: %v", grown)
	}
}

// wantWhole fails if a frame tells of something that a stack lacks.
func wantWhole(t *testing.T, frames []string) {
	t.Helper()
	for _, f := range frames {
		if strings.HasPrefix(f, "[") {
			t.Errorf("a frame %s", f)
		}
	}
}

// own are a stack's functions of the chain workload's own objects.
func own(s stack) []string {
	var names []string
	for _, f := range s.frames {
		if f.object == "chain" || strings.HasPrefix(f.object, "libchain_") {
			names = append(names, demangle.Filter(f.system))
		}
	}
	return names
}

// wantChain fails unless every stack of a service is the chain's.
func wantChain(t *testing.T, server *server, service string) {
	t.Helper()
	for _, s := range server.stacks(t, service) {
		if got, want := own(s), append(fakegpu.ChainFunctions(), "_start"); !slices.Equal(got, want) {
			t.Errorf("a stack of %d bytes:\n%q, want\n%q", s.bytes, got, want)
		}
	}
}

// TestAgentStartedLate starts the agent when the workloads have had the driver for long, and names no library to it.
func TestAgentStartedLate(t *testing.T) {
	server, symbolizer := startServer(t), startSymbolizer(t)
	chain, train := startChain(t, "late-chain"), startTrain(t, "late-trainer", "v1")
	startLateAgent(t, server.url, symbolizer.url, "--interval", "2s")
	for service, w := range map[string]workload{"late-chain": chain, "late-trainer": train} {
		before := len(w.calls(t)) // the training loop has loaded its model
		w.GoOn()
		w.Await("^hold$")
		server.awaitTotal(t, service, fakegpu.Total(w.calls(t)[before:]).Alloc.Bytes)
		wantWhole(t, server.frames(t, service))
	}
	wantChain(t, server, "late-chain")
	if frames := server.frames(t, "late-trainer"); !slices.Contains(frames, "größe_anpassen") || !slices.Contains(frames, "cuMemAllocAsync") {
		t.Errorf("frames\n%s", strings.Join(frames, "\n"))
	}
}

// TestLastInterval ends the agent with SIGTERM long before its interval does.
func TestLastInterval(t *testing.T) {
	server, symbolizer := startServer(t), startSymbolizer(t)
	agent := startAgent(t, server.url, symbolizer.url, "--interval", "1h")
	chain := startChain(t, "last")
	chain.GoOn()
	chain.Await("^hold$")
	agent.Stop()
	server.awaitTotal(t, "last", fakegpu.Total(chain.calls(t)).Alloc.Bytes)
	wantWhole(t, server.frames(t, "last"))
	wantChain(t, server, "last")
}
