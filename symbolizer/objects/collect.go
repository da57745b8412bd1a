package objects

import (
	"debug/elf"
	"fmt"
	"sort"
	"strings"

	"github.com/vramprof/vramprof/internal/elfobj"
)

// source is where symbols come from. A higher one is better.
type source uint32

const (
	sourceNone    source = 0 // the file has no symbols of functions
	sourceDynamic source = 1 // .dynsym: what the file exports
	sourceTable   source = 2 // .symtab: all functions
)

// maxSpans bounds the memory of one index being built: 32 bytes each. The largest known builds have a million.
const maxSpans = 8 << 20

// bestSource tells how good a file's symbols are, without reading them.
func bestSource(f *elfobj.File) source {
	best := sourceNone
	for _, s := range f.Sections() {
		switch {
		case s.Type == elf.SHT_SYMTAB && s.Size > 0:
			best = sourceTable
		case s.Type == elf.SHT_DYNSYM && s.Size > 0:
			best = max(best, sourceDynamic)
		}
	}
	return best
}

// collector gathers the symbols of functions.
type collector struct {
	code  []elfobj.Section // sections of code, by address
	put   func([]byte) (name, error)
	spans []span
	known []uint64 // starts of what .symtab has, sorted: .dynsym repeats it
	err   error
}

// collect gives the symbols of a file's code. A file whose tables break off gives what was whole, and one whose tables
// give nothing for that reason an error.
func collect(f *elfobj.File, put func([]byte) (name, error)) ([]span, error) {
	c := &collector{put: put}
	for _, s := range f.Sections() {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Size > 0 && s.Address+s.Size > s.Address {
			c.code = append(c.code, s)
		}
	}
	sort.Slice(c.code, func(i, j int) bool { return c.code[i].Address < c.code[j].Address })
	dynamic := false
	broken := f.Symbols(func(s elfobj.Symbol) bool {
		if s.Dynamic && !dynamic {
			dynamic = true
			for _, s := range c.spans {
				c.known = append(c.known, s.start)
			}
			sort.Slice(c.known, func(i, j int) bool { return c.known[i] < c.known[j] })
		}
		return c.add(s)
	})
	if c.err != nil {
		return nil, c.err
	}
	if broken != nil && len(c.spans) == 0 {
		return nil, invalid{fmt.Errorf("read symbols: %w", broken)}
	}
	return c.spans, nil
}

func (c *collector) add(s elfobj.Symbol) (more bool) {
	if !s.Defined() || !isFunction(s) {
		return true
	}
	section, ok := c.section(s.Value)
	if !ok {
		return true
	}
	if s.Dynamic {
		if i := sort.Search(len(c.known), func(i int) bool { return c.known[i] >= s.Value }); i < len(c.known) && c.known[i] == s.Value {
			return true
		}
	}
	if len(c.spans) == maxSpans {
		c.err = invalid{fmt.Errorf("read symbols: more than %d functions", maxSpans)}
		return false
	}
	n, err := c.put([]byte(s.Name))
	if err != nil {
		c.err = err
		return false
	}
	end := section.Address + section.Size
	unsized := s.Size == 0
	if !unsized && s.Size < end-s.Value {
		end = s.Value + s.Size
	}
	c.spans = append(c.spans, span{start: s.Value, end: end, name: n, rank: rank(s), unsized: unsized})
	return true
}

func (c *collector) section(address uint64) (elfobj.Section, bool) {
	i := sort.Search(len(c.code), func(i int) bool { return c.code[i].Address > address }) - 1
	if i < 0 || address-c.code[i].Address >= c.code[i].Size {
		return elfobj.Section{}, false
	}
	return c.code[i], true
}

// isFunction tells whether a symbol in a section of code names code: functions, and labels of assembly, but not the marks
// that say where code and data alternate ($x, $d: ELF for the Arm 64-bit Architecture, "Mapping symbols") or local labels.
func isFunction(s elfobj.Symbol) bool {
	switch s.Type {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		return true
	case elf.STT_NOTYPE:
		return !strings.HasPrefix(s.Name, "$") && !strings.HasPrefix(s.Name, ".L")
	}
	return false
}

// rank orders the names of one address, the most public first: by binding, functions before labels, fewer leading
// underscores.
func rank(s elfobj.Symbol) uint8 {
	r := uint8(0)
	switch s.Bind {
	case elf.STB_GLOBAL, elf.STB_LOOS: // STB_GNU_UNIQUE
	case elf.STB_WEAK:
		r = 1
	default:
		r = 2
	}
	r <<= 1
	if s.Type == elf.STT_NOTYPE {
		r |= 1
	}
	underscores := len(s.Name) - len(strings.TrimLeft(s.Name, "_"))
	return r<<2 | uint8(min(underscores, 3))
}
