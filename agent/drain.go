package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/gpuapi"
	"github.com/vramprof/vramprof/agent/ledger"
	"github.com/vramprof/vramprof/agent/profile"
)

// grace is how long what is known of a process is kept after its end, for calls that are on their way.
const grace = 5 * time.Second

// Window is what happened in one interval.
type Window struct {
	Start, End time.Time
	// Series have samples; no two have the same labels.
	Series []Series
	// Comments say what is missing from it, for a person.
	Comments []string
}

// Series are the stacks of the processes that have the same labels.
type Series struct {
	Labels map[string]string
	Stacks []profile.Stack
}

// Drain closes the interval that began at start: what was allocated and refused in it, and what is in use at its end and
// was at its peaks. What cannot be named in time is named by its place in its object.
func (a *Agent) Drain(ctx context.Context, start time.Time) (Window, error) {
	a.drain.Lock()
	defer a.drain.Unlock()
	interval, err := a.kernel.NextInterval()
	if err != nil {
		return Window{}, err
	}
	snapshot, err := a.kernel.Snapshot(interval)
	if err != nil {
		return Window{}, err
	}
	w := Window{Start: start, End: time.Now()}
	if err := a.settle(); err != nil {
		return w, err
	}
	entries, gone := a.entries(snapshot)
	w.Series, w.Comments = a.name(ctx, entries)
	if err := a.kernel.Forget(gone); err != nil {
		a.log.Warn("accounts of processes that ended stay in the kernel", "error", err)
	}
	a.forgetAccounts(gone)
	return w, nil
}

// entries gives what the interval's counters say by process, and which accounts ended.
func (a *Agent) entries(s bpf.Snapshot) ([]ledger.Entry, map[uint32]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := map[uint32]bool{}
	newest := map[uint32]uint32{} // of each process number, the newest account: the others' programs ended with an exec
	for n, account := range s.Accounts {
		newest[account.PID] = max(newest[account.PID], n)
	}
	for n, account := range s.Accounts {
		if n != bpf.OverflowAccount && (newest[account.PID] != n || !alive(account.PID)) {
			gone[n] = true
		}
		if _, ok := a.accounts[n]; !ok { // its record was lost
			a.newAccount(bpf.Process{Account: n, PID: account.PID, ParentPID: account.ParentPID})
		}
	}
	var entries []ledger.Entry
	add := func(key ledger.Key, c bpf.Counter) {
		e := a.ledger.Settle(key, ledger.Totals{
			AllocBytes: c.AllocBytes, AllocObjects: c.AllocObjects, FailedBytes: c.FailedBytes, FailedObjects: c.FailedObjects,
			InUseBytes: c.InUseBytes, InUseObjects: c.InUseObjects, PeakBytes: c.PeakBytes, PeakObjects: c.PeakObjects,
		}, gone[key.Account])
		if !e.Empty() {
			entries = append(entries, e)
		}
	}
	for key, c := range s.Counters {
		add(ledgerKey(key), c)
	}
	for _, key := range a.ledger.Added() {
		if _, ok := s.Counters[bpf.CounterKey{Account: key.Account, Stack: bpf.StackID{Hi: key.Stack[0], Lo: key.Stack[1]}, Class: key.Class, API: key.API}]; !ok {
			add(key, bpf.Counter{})
		}
	}
	for n, account := range s.Accounts {
		for class, c := range account.Lost {
			if c != (bpf.Counter{}) {
				add(ledger.Key{Account: n, Class: uint8(class), API: uint8(gpuapi.APICUDA), Stack: lostStack}, c)
			}
		}
	}
	return entries, gone
}

// lostStack is the identity of what found no room among the counters.
var lostStack = [2]uint64{^uint64(0), ^uint64(0)}

func alive(pid uint32) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && len(b) > 0
}

// name resolves the entries' stacks and puts them together by labels.
func (a *Agent) name(ctx context.Context, entries []ledger.Entry) ([]Series, []string) {
	a.mu.Lock()
	stacks := make([][]frame, len(entries))
	labels := make([]map[string]string, len(entries))
	lost := 0
	for i, e := range entries {
		switch s := a.stacks[stackKey{e.Key.Account, bpf.StackID{Hi: e.Key.Stack[0], Lo: e.Key.Stack[1]}}]; {
		case s != nil:
			stacks[i] = s.frames
		case e.Key.Account == bpf.OverflowAccount:
			stacks[i] = []frame{{remark: "[too many processes]"}}
		default:
			stacks[i] = []frame{{remark: "[stack lost]"}}
			a.health.StacksLost++
			lost++
		}
		labels[i] = withMemory(a.accounts[e.Key.Account].labels, e.Key)
	}
	a.mu.Unlock()

	var comments []string
	if lost > 0 {
		comments = append(comments, fmt.Sprintf("%d samples lost their stacks", lost))
	}
	named := a.nameFrames(ctx, stacks)
	index := map[string]int{}
	var series []Series
	for i, e := range entries {
		key := fmt.Sprint(labels[i])
		at, ok := index[key]
		if !ok {
			at = len(series)
			index[key] = at
			series = append(series, Series{Labels: labels[i]})
		}
		series[at].Stacks = append(series[at].Stacks, profile.Stack{
			Frames: named[i],
			Values: profile.Values{
				AllocBytes: e.AllocBytes, AllocObjects: e.AllocObjects, FailedBytes: e.FailedBytes, FailedObjects: e.FailedObjects,
				InUseBytes: max(0, e.InUseBytes), InUseObjects: max(0, e.InUseObjects), PeakBytes: max(0, e.PeakBytes),
			},
		})
	}
	return series, comments
}

func withMemory(labels map[string]string, k ledger.Key) map[string]string {
	out := make(map[string]string, len(labels)+2)
	for n, v := range labels {
		out[n] = v
	}
	if out["service_name"] == "" {
		out["service_name"] = "unknown_service"
	}
	out["memory"] = gpuapi.Class(k.Class).String()
	out["api"] = gpuapi.API(k.API).String()
	return out
}

func remark(text string) profile.Frame {
	return profile.Frame{Lines: []profile.Line{{Function: text}}}
}

// forgetAccounts drops what is known of accounts and processes that ended.
func (a *Agent) forgetAccounts(gone map[uint32]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.Forget(gone)
	for k := range a.stacks {
		if gone[k.account] {
			delete(a.stacks, k)
		}
	}
	for k := range a.codes {
		if gone[k.account] {
			delete(a.codes, k)
		}
	}
	for n := range gone {
		delete(a.accounts, n)
	}
	now := time.Now()
	for _, pid := range a.table.Prune(now.Add(-grace), monotonic()-uint64(grace)) {
		delete(a.left, pid)
	}
}
