package agent

import (
	"testing"

	"github.com/vramprof/vramprof/agent/mappings"
	"github.com/vramprof/vramprof/agent/process"
)

// A process that was there before the agent, or whose fork was lost, is a descendant too: Scan tells its parent.
func TestDescendantsThatWereThereBefore(t *testing.T) {
	a := &Agent{options: Options{OnlyBelow: 5}, table: process.NewTable(), watched: map[uint32]*watched{}}
	a.event(mappings.Exec{PID: 10, ParentPID: 5})
	a.event(mappings.Exec{PID: 11, ParentPID: 1})
	a.event(mappings.Exec{PID: 12, ParentPID: 10})
	a.event(mappings.Fork{PID: 13, ParentPID: 12})
	a.event(mappings.Exec{PID: 13})
	for pid, want := range map[uint32]bool{10: true, 11: false, 12: true, 13: true, 14: false} {
		if got := a.below(pid); got != want {
			t.Errorf("process %d is below: %v, want %v", pid, got, want)
		}
	}
}
