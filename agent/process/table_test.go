package process_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/agent/process"
)

func mapping(start, end uint64, path string) process.Mapping {
	return process.Mapping{Start: start, End: end, Offset: start, Path: path}
}

func find(t *testing.T, p *process.Program, address uint64, want string) {
	t.Helper()
	m, ok := p.Find(address)
	if got := m.Path; got != want || ok != (want != "") {
		t.Errorf("at %#x: %q, want %q", address, got, want)
	}
}

func TestAChildHasItsParentsMappingsAndItsOwn(t *testing.T) {
	table := process.NewTable()
	table.Exec(10, 1)
	table.Map(10, mapping(0x1000, 0x2000, "a"), 2)
	table.Fork(11, 10, 3)
	table.Map(11, mapping(0x3000, 0x4000, "b"), 4)
	table.Map(10, mapping(0x5000, 0x6000, "c"), 5)
	child, parent := table.Get(11).Now(), table.Get(10).Now()
	find(t, child, 0x1fff, "a")
	find(t, child, 0x3000, "b")
	find(t, child, 0x5000, "")
	find(t, parent, 0x3000, "")
	find(t, parent, 0x5000, "c")
	if table.Get(11).Parent != 10 {
		t.Errorf("parent %d", table.Get(11).Parent)
	}
}

func TestAnExecIsAnotherProgramAndTheOldOneIsKept(t *testing.T) {
	table := process.NewTable()
	table.Exec(10, 100)
	table.Map(10, mapping(0x1000, 0x2000, "old"), 110)
	table.Exec(10, 200)
	table.Map(10, mapping(0x1000, 0x2000, "new"), 210)
	p := table.Get(10)
	find(t, p.Now(), 0x1000, "new")
	find(t, p.At(150), 0x1000, "old")
	find(t, p.At(200), 0x1000, "new")
	find(t, p.At(1), 0x1000, "old")
	table.Prune(time.Time{}, 201)
	find(t, p.At(150), 0x1000, "new")
}

func TestTheEndOfAProcessIsRememberedUntilPruned(t *testing.T) {
	table := process.NewTable()
	table.Exec(10, 1)
	table.Map(10, mapping(0x1000, 0x2000, "a"), 2)
	end := time.Unix(1000, 0)
	table.Exit(10, end)
	if forgotten := table.Prune(end, 0); len(forgotten) != 0 {
		t.Errorf("forgotten too early: %v", forgotten)
	}
	find(t, table.Get(10).Now(), 0x1000, "a")
	if forgotten := table.Prune(end.Add(1), 0); !slices.Equal(forgotten, []uint32{10}) || table.Get(10) != nil {
		t.Errorf("forgotten %v", forgotten)
	}
}

func TestTheParentOfAProcessWhoseForkWasNotSeen(t *testing.T) {
	table := process.NewTable()
	table.Exec(10, 1)
	table.SetParent(10, 7)
	table.SetParent(11, 7) // not known: nothing to note
	if table.Get(10).Parent != 7 || table.Get(11) != nil {
		t.Errorf("parent %d", table.Get(10).Parent)
	}
	if table.Exec(10, 2); table.Get(10).Parent != 7 {
		t.Error("an exec is no change of parent")
	}
}

func TestANumberThatIsUsedAgainIsAnotherProcess(t *testing.T) {
	table := process.NewTable()
	table.Exec(10, 1)
	table.Map(10, mapping(0x1000, 0x2000, "a"), 2)
	table.Exit(10, time.Unix(1, 0))
	table.Fork(10, 1, 50)
	if p := table.Get(10); !p.Gone.IsZero() || len(p.Now().Mappings) != 0 {
		t.Errorf("the new process has the old one's state: %+v", p)
	}
}

// Any order of mappings gives what a plain array of pages would.
func TestMapsAsAnArrayOfPagesWould(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		table := process.NewTable()
		var pages [64]string
		for i := range 40 {
			from := r.Uint64N(64)
			to := from + 1 + r.Uint64N(64-from)
			name := string(rune('A' + i))
			table.Map(1, process.Mapping{Start: from << 12, End: to << 12, Offset: from << 12, Path: name}, uint64(i))
			for p := from; p < to; p++ {
				pages[p] = name
			}
		}
		program := table.Get(1).Now()
		for i, m := range program.Mappings {
			if m.Start >= m.End || m.Offset != m.Start || i > 0 && program.Mappings[i-1].End > m.Start {
				t.Fatalf("mapping %d of %+v", i, program.Mappings)
			}
		}
		for p, want := range pages {
			find(t, program, uint64(p)<<12, want)
		}
	}
}
