package bpf

import "fmt"

// Statistics are the programs' own counts, by name: what they could not do, and how often.
func (k *Kernel) Statistics() (map[string]uint64, error) {
	out := make(map[string]uint64, len(statisticNames))
	for i, name := range statisticNames {
		var perCPU []uint64
		if err := k.objects.Statistics.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read statistic %s: %w", name, err)
		}
		for _, n := range perCPU {
			out[name] += n
		}
	}
	return out, nil
}

var statisticNames = [vramprofStatisticSTATISTICS]string{
	vramprofStatisticSTAT_CALLS:               "calls",
	vramprofStatisticSTAT_ROW_UNKNOWN:         "row_unknown",
	vramprofStatisticSTAT_NO_STORAGE:          "no_thread_storage",
	vramprofStatisticSTAT_CALLS_TOO_DEEP:      "calls_too_deep",
	vramprofStatisticSTAT_CALL_ABANDONED:      "calls_abandoned",
	vramprofStatisticSTAT_RETURN_UNMATCHED:    "returns_unmatched",
	vramprofStatisticSTAT_POINTER_UNREADABLE:  "pointers_unreadable",
	vramprofStatisticSTAT_SIZE_UNREADABLE:     "sizes_unreadable",
	vramprofStatisticSTAT_LIVE_REPLACED:       "live_replaced",
	vramprofStatisticSTAT_FREE_UNKNOWN:        "frees_unknown",
	vramprofStatisticSTAT_FREE_FAILED:         "frees_failed",
	vramprofStatisticSTAT_ACCOUNTS_FULL:       "accounts_full",
	vramprofStatisticSTAT_COUNTERS_FULL:       "counters_full",
	vramprofStatisticSTAT_COUNTERS_FULL_BYTES: "counters_full_bytes",
	vramprofStatisticSTAT_LIVE_FULL:           "live_full",
	vramprofStatisticSTAT_LIVE_FULL_BYTES:     "live_full_bytes",
	vramprofStatisticSTAT_LOCK_GIVEN_UP:       "lock_given_up",
	vramprofStatisticSTAT_RING_FULL:           "ring_full",
	vramprofStatisticSTAT_COMMIT_LOST:         "commits_lost",
	vramprofStatisticSTAT_COMMIT_LOST_BYTES:   "commits_lost_bytes",
	vramprofStatisticSTAT_WALKS:               "stacks_taken",
	vramprofStatisticSTAT_NATIVE_REUSED:       "native_reused",
	vramprofStatisticSTAT_PYTHON_REUSED:       "python_reused",
	vramprofStatisticSTAT_REUSED_WRONG:        "reused_wrong",
	vramprofStatisticSTAT_COPIES:              "stacks_copied",
}
