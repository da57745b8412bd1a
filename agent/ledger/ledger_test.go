package ledger_test

import (
	"testing"

	"github.com/vramprof/vramprof/agent/ledger"
)

var (
	weights = ledger.Key{Account: 2, Stack: [2]uint64{1, 1}, Class: 1}
	cache   = ledger.Key{Account: 2, Stack: [2]uint64{2, 2}, Class: 1}
	other   = ledger.Key{Account: 3, Stack: [2]uint64{1, 1}, Class: 1}
)

func TestSettleGivesDifferencesAndLevels(t *testing.T) {
	l := ledger.New()
	first := l.Settle(weights, ledger.Totals{AllocBytes: 100, AllocObjects: 2, InUseBytes: 60, InUseObjects: 1, PeakBytes: 100, PeakObjects: 2}, false)
	if first.AllocBytes != 100 || first.AllocObjects != 2 || first.InUseBytes != 60 || first.PeakBytes != 100 {
		t.Errorf("first interval: %+v", first)
	}
	second := l.Settle(weights, ledger.Totals{AllocBytes: 130, AllocObjects: 3, FailedBytes: 7, FailedObjects: 1, InUseBytes: 90, InUseObjects: 2, PeakBytes: 90, PeakObjects: 2}, false)
	want := ledger.Entry{Key: weights, AllocBytes: 30, AllocObjects: 1, FailedBytes: 7, FailedObjects: 1, InUseBytes: 90, InUseObjects: 2, PeakBytes: 90, PeakObjects: 2}
	if second != want {
		t.Errorf("second interval: %+v, want %+v", second, want)
	}
	third := l.Settle(weights, ledger.Totals{AllocBytes: 130, AllocObjects: 3, FailedBytes: 7, FailedObjects: 1}, false)
	if !third.Empty() {
		t.Errorf("nothing happened and nothing is held, and yet %+v", third)
	}
}

func TestAProcessThatIsGoneHoldsNothing(t *testing.T) {
	l := ledger.New()
	e := l.Settle(weights, ledger.Totals{AllocBytes: 100, AllocObjects: 1, InUseBytes: 100, InUseObjects: 1, PeakBytes: 100, PeakObjects: 1}, true)
	if e.InUseBytes != 0 || e.InUseObjects != 0 {
		t.Errorf("in use after the end: %+v", e)
	}
	if e.AllocBytes != 100 || e.PeakBytes != 100 {
		t.Errorf("what it did before the end is lost: %+v", e)
	}
}

func TestAddedChangesAreNotLost(t *testing.T) {
	l := ledger.New()
	l.Add(cache, 40, 1, 40, 1)
	l.Add(cache, -40, -1, 0, 0)
	l.Add(cache, 8, 1, 8, 1)
	if keys := l.Added(); len(keys) != 1 || keys[0] != cache {
		t.Fatalf("added keys %v", keys)
	}
	e := l.Settle(cache, ledger.Totals{AllocBytes: 2, AllocObjects: 1, InUseBytes: 2, InUseObjects: 1, PeakBytes: 2, PeakObjects: 1}, false)
	if e.AllocBytes != 50 || e.AllocObjects != 3 || e.InUseBytes != 10 || e.InUseObjects != 2 || e.PeakBytes != 10 {
		t.Errorf("with what was added: %+v", e)
	}
	if again := l.Settle(cache, ledger.Totals{AllocBytes: 2, AllocObjects: 1, InUseBytes: 2, InUseObjects: 1}, false); again.AllocBytes != 0 {
		t.Errorf("added twice: %+v", again)
	}
}

func TestForgetTakesOneAccountOnly(t *testing.T) {
	l := ledger.New()
	l.Settle(weights, ledger.Totals{AllocBytes: 5, AllocObjects: 1}, false)
	l.Settle(other, ledger.Totals{AllocBytes: 5, AllocObjects: 1}, false)
	l.Forget(map[uint32]bool{2: true})
	if e := l.Settle(weights, ledger.Totals{AllocBytes: 5, AllocObjects: 1}, false); e.AllocBytes != 5 {
		t.Errorf("a forgotten account is remembered: %+v", e)
	}
	if e := l.Settle(other, ledger.Totals{AllocBytes: 5, AllocObjects: 1}, false); e.AllocBytes != 0 {
		t.Errorf("another account was forgotten: %+v", e)
	}
}
