package bpf_test

import (
	"testing"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/integration/fakegpu"
)

func TestCountersFull(t *testing.T) {
	b := load(t, bpf.Options{MaxCounters: 64})
	truth := fakegpu.Total(b.chain("--iterations", "300", "--mix", "--keep", "150"))
	got := b.sums()
	if got.counters != 64 || got.AllocBytes != truth.Alloc.Bytes || got.AllocObjects != truth.Alloc.Objects ||
		got.InUseBytes != int64(truth.InUse.Bytes) || got.PeakBytes != int64(truth.Peak.Bytes) {
		t.Errorf("%+v, the driver says %+v", got, truth)
	}
	if n, bytes := b.statistic("counters_full"), b.statistic("counters_full_bytes"); got.lost.AllocObjects != 300-64 || n < 300-64 || bytes != got.lost.AllocBytes {
		t.Errorf("%+v found no room, counted as %d calls and %d bytes", got.lost, n, bytes)
	}
}

func TestAccountsFull(t *testing.T) {
	b := load(t, bpf.Options{MaxProcesses: 2}) // one and the overflow account
	calls := b.chain("--fork", "3", "--iterations", "20", "--keep", "5")
	truth := fakegpu.Total(calls)
	got := b.sums()
	if got.accounts != 2 || got.AllocBytes != truth.Alloc.Bytes || got.AllocObjects != truth.Alloc.Objects {
		t.Errorf("%+v, the driver says %+v", got, truth)
	}
	now, err := b.kernel.Interval()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := b.kernel.Snapshot(now)
	if err != nil {
		t.Fatal(err)
	}
	for number, account := range snapshot.Accounts {
		sum := bpf.Counter{}
		for key, c := range snapshot.Counters {
			if key.Account == number {
				plus(&sum, c)
			}
		}
		if number == bpf.OverflowAccount {
			if sum.AllocObjects != 40 || account.InUseBytes != 0 || account.PeakBytes != 0 {
				t.Errorf("overflow account %+v, %+v", account, sum)
			}
			continue
		}
		want := fakegpu.Total(fakegpu.OfProcess(calls, int(account.PID)))
		if sum.AllocBytes != want.Alloc.Bytes || account.InUseBytes != int64(want.InUse.Bytes) || account.PeakBytes != int64(want.Peak.Bytes) || want.Alloc.Objects != 20 {
			t.Errorf("account %+v, %+v; the driver says %+v", account, sum, want)
		}
	}
	if b.statistic("accounts_full") == 0 {
		t.Error("not counted")
	}
}

func TestLiveFull(t *testing.T) {
	b := load(t, bpf.Options{MaxLive: 16})
	c := b.caller()
	var pointers []uint64
	for i := range uint64(100) {
		pointers = append(pointers, c.allocate(1000+i))
	}
	got := b.sums()
	if want := uint64(100*1000 + 99*50); got.AllocBytes != want || got.AllocObjects != 100 || got.InUseObjects != 16 || got.InUseBytes != 16*1000+15*8 {
		t.Errorf("%+v, want %d bytes allocated, and the first 16 in use", got, want)
	}
	if n, bytes := b.statistic("live_full"), b.statistic("live_full_bytes"); n != 84 || bytes != got.AllocBytes-uint64(got.InUseBytes) {
		t.Errorf("%d allocations of %d bytes counted as without room", n, bytes)
	}
	for _, p := range pointers {
		c.free(p)
	}
	if got := b.sums(); got.InUseBytes != 0 || got.InUseObjects != 0 || got.AllocObjects != 100 {
		t.Errorf("after all frees %+v", got)
	}
	if n := b.statistic("frees_unknown"); n != 84 {
		t.Errorf("%d frees of what had found no room", n)
	}
}

func TestForget(t *testing.T) {
	b := load(t, bpf.Options{})
	c := b.caller()
	c.allocate(1000)
	other := b.caller()
	p := other.allocate(10)
	now, err := b.kernel.Interval()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := b.kernel.Snapshot(now)
	if err != nil {
		t.Fatal(err)
	}
	for number, a := range snapshot.Accounts {
		if a.PID == uint32(c.cmd.Process.Pid) {
			if err := b.kernel.Forget(map[uint32]bool{number: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.sums(); got.AllocBytes != 10 || got.InUseBytes != 10 || got.counters != 1 {
		t.Errorf("%+v", got)
	}
	other.free(p)
	if got := b.sums(); got.InUseBytes != 0 || b.statistic("frees_unknown") != 0 {
		t.Errorf("%+v", got)
	}
}
