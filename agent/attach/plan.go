package attach

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Site is one instruction to probe: the beginning of a function, or an instruction soon after it that is cheaper to probe.
type Site struct {
	Symbols     []string // every wanted name of the function: names can share one address
	Address     uint64   // ELF virtual address of the function
	FileOffset  uint64   // offset of the function's first byte in the file
	ProbeOffset uint64   // from the function's first byte to the probed instruction
	Instruction string   // the probed instruction, as "je +0xc"
	Why         string   // why this instruction, for people
}

// Reason tells why a wanted symbol got no site. Its text is fit for a metric label.
type Reason string

// The reasons for which a symbol is refused.
const (
	ReasonAbsent      Reason = "absent"       // the file does not have the symbol
	ReasonUndefined   Reason = "undefined"    // the file only imports the symbol; another file defines it
	ReasonNotFunction Reason = "not_function" // data, or an indirect function, whose address is that of a resolver
	ReasonNotCode     Reason = "not_code"     // the address is in no executable segment, or the segment's bytes are not in the file
)

// Refusal is a wanted symbol without a site.
type Refusal struct {
	Symbol string
	Reason Reason
}

// Plan is what to probe in one file.
type Plan struct {
	Sites    []Site    // by address
	Refused  []Refusal // in the order asked for
	Exported []string  // sorted names of all functions that the file exports, to report allocators that nobody knows
}

// maxSymbols bounds the work for a file made up to be expensive: the largest library known to us, libtorch_cuda, exports
// 43,334 names.
const maxSymbols = 1 << 20

// NewPlan reads the dynamic symbols of an ELF file and plans a probe for each of the wanted names. A name with several
// versions has one site per version. It fails if the file is no 64-bit x86-64 or AArch64 object with dynamic symbols; a
// single symbol that cannot be probed is refused with its reason and the others are planned. On AArch64 every site is the
// function's first instruction.
func NewPlan(file io.ReaderAt, symbols []string) (Plan, error) {
	f, err := elf.NewFile(file)
	if err != nil {
		return Plan{}, fmt.Errorf("plan probes: read ELF: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || (f.Machine != elf.EM_X86_64 && f.Machine != elf.EM_AARCH64) {
		return Plan{}, fmt.Errorf("plan probes: %v %v %v is not supported: only 64-bit x86-64 and AArch64 are", f.Class, f.Data, f.Machine)
	}
	dynamic, err := dynamicSymbols(f)
	if err != nil {
		return Plan{}, fmt.Errorf("plan probes: %w", err)
	}

	wanted := make(map[string]int, len(symbols)) // to the place in symbols
	for i, s := range symbols {
		wanted[s] = i
	}
	var plan Plan
	refused := make(map[string]Reason)
	sites := make(map[uint64]*function)
	for _, s := range dynamic {
		reason := judge(s)
		if reason == "" {
			plan.Exported = append(plan.Exported, s.Name)
		}
		if _, ok := wanted[s.Name]; !ok {
			continue
		}
		segment, ok := executable(f, s.Value)
		if reason == "" && !ok {
			reason = ReasonNotCode
		}
		if reason != "" {
			refused[s.Name] = reason
			continue
		}
		fn := sites[s.Value]
		if fn == nil {
			fn = &function{address: s.Value, segment: segment}
			sites[s.Value] = fn
		}
		fn.size = max(fn.size, s.Size)
		if !slices.Contains(fn.names, s.Name) {
			fn.names = append(fn.names, s.Name)
		}
	}
	slices.Sort(plan.Exported)
	plan.Exported = slices.Compact(plan.Exported)

	planned := make(map[string]bool)
	for _, fn := range sites {
		slices.SortFunc(fn.names, func(a, b string) int { return cmp.Compare(wanted[a], wanted[b]) })
		for _, n := range fn.names {
			planned[n] = true
		}
		plan.Sites = append(plan.Sites, fn.site(f.Machine))
	}
	slices.SortFunc(plan.Sites, func(a, b Site) int { return cmp.Compare(a.Address, b.Address) })
	for _, s := range symbols {
		if !planned[s] {
			plan.Refused = append(plan.Refused, Refusal{s, cmp.Or(refused[s], ReasonAbsent)})
		}
	}
	return plan, nil
}

// dynamicSymbols bounds the table before debug/elf reads it.
func dynamicSymbols(f *elf.File) ([]elf.Symbol, error) {
	table := f.SectionByType(elf.SHT_DYNSYM)
	if table == nil {
		return nil, errors.New("no dynamic symbol section: not a shared library, or stripped of its section headers")
	}
	if table.Size/elf.Sym64Size > maxSymbols {
		return nil, fmt.Errorf("%d dynamic symbols are more than %d", table.Size/elf.Sym64Size, maxSymbols)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read dynamic symbols: %w", err)
	}
	return symbols, nil
}

func judge(s elf.Symbol) Reason {
	switch {
	case s.Section == elf.SHN_UNDEF || s.Value == 0:
		return ReasonUndefined
	case elf.ST_TYPE(s.Info) != elf.STT_FUNC:
		return ReasonNotFunction
	}
	return ""
}

// executable finds the segment whose bytes in the file hold the code at an address. Where the linker gave the text a base
// of its own, address and file offset differ.
func executable(f *elf.File, address uint64) (*elf.Prog, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
			return p, true
		}
	}
	return nil, false
}

// function is a wanted function while it is planned.
type function struct {
	names   []string
	address uint64
	size    uint64 // 0 where the symbol has none
	segment *elf.Prog
}

func (f *function) site(machine elf.Machine) Site {
	within := f.address - f.segment.Vaddr
	s := Site{Symbols: f.names, Address: f.address, FileOffset: f.segment.Off + within}
	if machine != elf.EM_X86_64 {
		s.Why = "first instruction: the choice of another is for x86-64 only"
		return s
	}
	code := make([]byte, min(f.size, maxFunction, f.segment.Filesz-within))
	n, err := f.segment.ReadAt(code, int64(within))
	if err != nil && !errors.Is(err, io.EOF) {
		s.Why = "first instruction: the code cannot be read: " + err.Error()
		return s
	}
	p := choose(code[:n], f.size > uint64(n))
	s.ProbeOffset, s.Instruction, s.Why = uint64(p.offset), p.instruction, p.why
	return s
}
