// Package ledger turns what the kernel half has counted since a process began into what happened in one interval: bytes
// allocated and refused as differences, bytes in use and at the peak as they stand.
//
// It follows the standing rules for a number: the sum over all stacks equals what the driver was asked for; a process
// that is gone holds nothing; what could not be counted in the kernel is added here and not lost.
package ledger

// Key names what is counted apart.
type Key struct {
	Account    uint32
	Stack      [2]uint64
	Class, API uint8
}

// Totals are counts since a process began. Bytes, and numbers of allocations.
type Totals struct {
	AllocBytes, AllocObjects   uint64
	FailedBytes, FailedObjects uint64
	InUseBytes, InUseObjects   int64
	// PeakBytes and PeakObjects are what was held when the process held most in the interval.
	PeakBytes, PeakObjects int64
}

// Entry is what one key did in an interval, and holds at its end.
type Entry struct {
	Key                        Key
	AllocBytes, AllocObjects   int64
	FailedBytes, FailedObjects int64
	InUseBytes, InUseObjects   int64
	PeakBytes, PeakObjects     int64
}

// Empty tells whether there is nothing to report.
func (e Entry) Empty() bool {
	return e.AllocObjects == 0 && e.FailedObjects == 0 && e.InUseBytes == 0 && e.InUseObjects == 0 && e.PeakBytes == 0 && e.PeakObjects == 0
}

// Ledger remembers the totals of the interval before. It is not safe for concurrent use.
type Ledger struct {
	before map[Key]Totals
	// what the kernel half could not commit, since each process began
	added map[Key]Totals
}

// New makes an empty ledger.
func New() *Ledger { return &Ledger{before: map[Key]Totals{}, added: map[Key]Totals{}} }

// Add takes a change that the kernel half could not make. It is part of every later Settle of its key.
func (l *Ledger) Add(key Key, inUseBytes, inUseObjects int64, allocBytes, allocObjects uint64) {
	t := l.added[key]
	t.InUseBytes += inUseBytes
	t.InUseObjects += inUseObjects
	t.AllocBytes += allocBytes
	t.AllocObjects += allocObjects
	l.added[key] = t
}

// Added lists the keys of an account that Add has named, so that one which the kernel half has no counter for is settled
// too.
func (l *Ledger) Added() []Key {
	keys := make([]Key, 0, len(l.added))
	for k := range l.added {
		keys = append(keys, k)
	}
	return keys
}

// Settle gives what happened to key since it was last settled. gone says that its process has ended, so that it holds
// nothing; what it held at its peak it did hold.
func (l *Ledger) Settle(key Key, now Totals, gone bool) Entry {
	if a, ok := l.added[key]; ok {
		now.AllocBytes += a.AllocBytes
		now.AllocObjects += a.AllocObjects
		now.InUseBytes += a.InUseBytes
		now.InUseObjects += a.InUseObjects
		now.PeakBytes = max(now.PeakBytes, now.InUseBytes)
		now.PeakObjects = max(now.PeakObjects, now.InUseObjects)
	}
	before := l.before[key]
	l.before[key] = now
	e := Entry{
		Key:        key,
		AllocBytes: int64(now.AllocBytes - before.AllocBytes), AllocObjects: int64(now.AllocObjects - before.AllocObjects),
		FailedBytes: int64(now.FailedBytes - before.FailedBytes), FailedObjects: int64(now.FailedObjects - before.FailedObjects),
		InUseBytes: now.InUseBytes, InUseObjects: now.InUseObjects,
		PeakBytes: now.PeakBytes, PeakObjects: now.PeakObjects,
	}
	if gone {
		e.InUseBytes, e.InUseObjects = 0, 0
	}
	return e
}

// Forget drops what is remembered of accounts that will not be settled again.
func (l *Ledger) Forget(accounts map[uint32]bool) {
	for _, m := range []map[Key]Totals{l.before, l.added} {
		for k := range m {
			if accounts[k.Account] {
				delete(m, k)
			}
		}
	}
}
