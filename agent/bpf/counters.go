package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// CounterKey names what is counted apart: a stack of a process, by memory class and driver.
type CounterKey struct {
	Account    uint32
	Stack      StackID
	Class, API uint8
}

// Change is what a call changed.
type Change struct {
	InUseBytes, InUseObjects int64
	AllocBytes, AllocObjects uint64
}

// Counter is what one stack did and holds since its process began. Bytes and numbers of allocations.
type Counter struct {
	AllocBytes, AllocObjects   uint64
	FailedBytes, FailedObjects uint64
	InUseBytes, InUseObjects   int64
	// PeakBytes and PeakObjects are what it held when its process held most in the interval that was asked for.
	PeakBytes, PeakObjects int64
}

// OverflowAccount is the account of the processes that found no room in the map of accounts: what they allocated, without
// stacks, and nothing in use.
const OverflowAccount = 1

// Account is one process from its first call to its exit or exec.
type Account struct {
	Number, PID, ParentPID    uint32
	StartBoottime, StartStack uint64
	InUseBytes                int64
	// PeakBytes is the most that the process held in the interval that was asked for.
	PeakBytes int64
	// Lost is what found no room in the map of counters, by class. Its stacks are not known, its bytes are.
	Lost [16]Counter
}

// NextInterval begins a new interval for the peaks and returns the number of the one that ended, for Accounts and
// Counters. It must not be called again before both have read it.
func (k *Kernel) NextInterval() (ended uint64, err error) {
	if err := k.objects.Epoch.Get(&ended); err != nil {
		return 0, fmt.Errorf("read the interval's number: %w", err)
	}
	if err := k.objects.Epoch.Set(ended + 1); err != nil {
		return 0, fmt.Errorf("begin the next interval: %w", err)
	}
	return ended, nil
}

// Interval is the number of the interval under way.
func (k *Kernel) Interval() (now uint64, err error) {
	if err := k.objects.Epoch.Get(&now); err != nil {
		return 0, fmt.Errorf("read the interval's number: %w", err)
	}
	return now, nil
}

// Snapshot is the state of every account and counter, with the peaks of one interval.
type Snapshot struct {
	Accounts map[uint32]Account
	Counters map[CounterKey]Counter
}

// Snapshot reads the accounts and counters while programs go on changing them: each counter is whole, and what changes
// meanwhile is in this snapshot or in the next.
func (k *Kernel) Snapshot(interval uint64) (Snapshot, error) {
	s := Snapshot{Accounts: map[uint32]Account{}, Counters: map[CounterKey]Counter{}}
	raw := map[uint32]vramprofAccount{}
	err := each(k.objects.Accounts, func(number uint32, a vramprofAccount) {
		raw[number] = a
	})
	if err != nil {
		return s, fmt.Errorf("read accounts: %w", err)
	}
	err = each(k.objects.Counters, func(key vramprofCounterKey, c vramprofCounter) {
		a, ok := raw[key.Account]
		if ok {
			s.Counters[plainKey(key)] = plainCounter(c, a, interval)
		}
	})
	if err != nil {
		return s, fmt.Errorf("read counters: %w", err)
	}
	for number, a := range raw {
		out := Account{
			Number: number, PID: a.Tgid, ParentPID: a.Parent, StartBoottime: a.StartBoottime, StartStack: a.StartStack,
			InUseBytes: a.InuseBytes, PeakBytes: a.InuseBytes,
		}
		if settled(a, interval) {
			out.PeakBytes = a.PeakBytes[interval&1]
		}
		for i, c := range a.Lost {
			out.Lost[i] = plainCounter(c, a, interval)
		}
		s.Accounts[number] = out
	}
	return s, nil
}

// Forget deletes an account and its counters, for a process that is gone and was read for the last time. Its live
// allocations go too: a process that is gone holds nothing.
func (k *Kernel) Forget(accounts map[uint32]bool) error {
	if len(accounts) == 0 {
		return nil
	}
	return errors.Join(
		remove(k.objects.Lives, func(key vramprofLiveKey, _ vramprofLive) bool { return accounts[key.Account] }),
		remove(k.objects.Counters, func(key vramprofCounterKey, _ vramprofCounter) bool { return accounts[key.Account] }),
		remove(k.objects.Stacks, func(key vramprofStackKey, _ uint8) bool { return accounts[key.Account] }),
		remove(k.objects.Codes, func(key vramprofCodeKey, _ uint8) bool { return accounts[key.Account] }),
		remove(k.objects.Processes, func(_ uint32, p vramprofProcess) bool { return accounts[p.Account] }),
		remove(k.objects.Accounts, func(number uint32, _ vramprofAccount) bool { return accounts[number] }),
	)
}

// settled tells whether the account's peak of the interval is its own word for it. An account that has not changed since
// before it held the same all the time.
func settled(a vramprofAccount, interval uint64) bool {
	return a.Epoch == interval || a.Epoch == interval+1
}

// plainCounter follows c/account.h: a counter whose generation is not the account's has not changed since the peak, so
// what it holds is what it held.
func plainCounter(c vramprofCounter, a vramprofAccount, interval uint64) Counter {
	out := Counter{
		AllocBytes: c.AllocBytes, AllocObjects: c.AllocObjects, FailedBytes: c.FailedBytes, FailedObjects: c.FailedObjects,
		InUseBytes: c.InuseBytes, InUseObjects: c.InuseObjects, PeakBytes: c.InuseBytes, PeakObjects: c.InuseObjects,
	}
	if p := interval & 1; settled(a, interval) && c.Generation[p] == a.Generation[p] {
		out.PeakBytes, out.PeakObjects = c.PeakBytes[p], c.PeakObjects[p]
	}
	return out
}

func plainKey(k vramprofCounterKey) CounterKey {
	return CounterKey{Account: k.Account, Stack: plainID(k.Stack), Class: k.Class, API: k.Api}
}

// each visits every entry. Programs insert and delete meanwhile, which can make an iteration start over, so an entry may
// come twice; what is there throughout comes at least once.
func each[K, V any](m *ebpf.Map, visit func(K, V)) error {
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		visit(key, value)
	}
	return it.Err()
}

func remove[K, V any](m *ebpf.Map, doomed func(K, V) bool) error {
	var keys []K
	if err := each(m, func(k K, v V) {
		if doomed(k, v) {
			keys = append(keys, k)
		}
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}
