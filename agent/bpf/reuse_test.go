package bpf_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/agent/bpf"
)

// TestReuse has stacks recognised or walked while paths alternate and frames move, and compares every stack's numbers with
// those of the path that it must stand for.
func TestReuse(t *testing.T) {
	for _, test := range []struct {
		name    string
		options bpf.Options
		threads int
	}{
		{"checked", bpf.Options{CheckReuse: true}, 1},
		{"checked in threads", bpf.Options{CheckReuse: true}, 8},
		{"not checked", bpf.Options{}, 8},
		{"off", bpf.Options{NoReuse: true}, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			const calls = 3000
			b := load(t, test.options)
			c := b.caller()
			c.free(c.allocate(1)) // everything is mapped from here on
			b.unwound(uint32(c.cmd.Process.Pid))
			copied := b.statistic("stacks_copied")
			c.do("p", calls, test.threads)

			now, err := b.kernel.Interval()
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := b.kernel.Snapshot(now)
			if err != nil {
				t.Fatal(err)
			}
			var got []bpf.Counter
			for _, c := range snapshot.Counters {
				if c.AllocBytes > 1 {
					got = append(got, bpf.Counter{AllocBytes: c.AllocBytes, AllocObjects: c.AllocObjects, InUseBytes: c.InUseBytes, InUseObjects: c.InUseObjects})
				}
			}
			byPath := map[uint32]bpf.Counter{}
			for thread := range uint32(test.threads) {
				for i := range uint32(calls) {
					path := (i/4*2654435761 + thread*40503) >> 7 & 63 // PATH(thread, i / 4) in calls.c
					w := byPath[path]
					w.AllocBytes += 4096 + uint64(path)
					w.AllocObjects++
					byPath[path] = w
				}
			}
			want := slices.Collect(maps.Values(byPath))
			bySize := func(a, b bpf.Counter) int { return int(int64(a.AllocBytes) - int64(b.AllocBytes)) }
			slices.SortFunc(got, bySize)
			slices.SortFunc(want, bySize)
			if len(want) != 64 || !slices.Equal(got, want) {
				t.Errorf("%d stacks %+v, want %d %+v", len(got), got, len(want), want)
			}
			if n := b.statistic("stacks_copied") - copied; n > 0 {
				t.Errorf("%d stacks were left to user space", n)
			}
			if n := b.statistic("reused_wrong"); n > 0 {
				t.Errorf("%d stacks were taken for others", n)
			}
			if n := b.statistic("native_reused"); (n > 0) == test.options.NoReuse {
				t.Errorf("%d of %d stacks were recognised", n, test.threads*calls)
			}
		})
	}
}
