package ehframe

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// MaxRows bounds the rows of one file: more than ten times what the largest known library has.
const MaxRows = 1 << 25

var (
	// ErrNoFunctions says that a section describes no function.
	ErrNoFunctions = errors.New("no function is described")
	// ErrTooFar says that a file's functions lie more than 4 GiB apart, so that rows cannot hold their addresses.
	ErrTooFar = errors.New("functions lie more than 4 GiB apart")
	// ErrTooManyRows says that a file needs more than MaxRows.
	ErrTooManyRows = errors.New("too many rows")
	// ErrEntriesOverlap says that entries share bytes, so that reading them all could take a time without bound.
	ErrEntriesOverlap = errors.New("entries overlap each other")
)

// Parse makes rows of an .eh_frame section that is loaded at the address eh. hdr is the .eh_frame_hdr section at its
// address, or empty.
//
// Where hdr has a table of functions, those functions are all there are, as they are for the C++ runtime: an optimizer
// that moves functions may leave the entries of their old places behind (BOLT does). Of functions that overlap, each ends
// where the next begins. What a function's entry says that a row cannot is a Bad row, and an entry that cannot be read
// costs that function only; Table.Unsaid counts both. The section is read once, so time and memory are bounded by its
// size, whatever is in it.
func Parse(section []byte, eh uint64, hdr []byte, hdrAddress uint64) (*Table, error) {
	if uint64(len(section)) > math.MaxUint32 {
		return nil, fmt.Errorf("parse .eh_frame: %d bytes: over 4 GiB", len(section))
	}
	p := parser{section: section, address: eh, budget: len(section), cies: map[uint32]*cie{}, table: &Table{Unsaid: map[Reason]int{}}}
	if !p.listed(hdr, hdrAddress) {
		p.scan()
	}
	t, err := p.finish()
	if err != nil {
		return nil, fmt.Errorf("parse .eh_frame: %w", err)
	}
	return t, nil
}

type parser struct {
	section []byte
	address uint64
	budget  int // bytes that may still be read: no entry shares bytes with another
	cies    map[uint32]*cie
	spans   []span
	table   *Table
	machine machine
}

// span is a function and where its instructions are.
type span struct {
	start      uint64
	length     uint32
	entry      uint32 // where the FDE begins; of two for one address, the one that comes first stands
	begin, end uint32 // its instructions
	cie        *cie
}

// cie is what the entries of many functions have in common.
type cie struct {
	codeAlign uint64
	dataAlign int64
	encoding  uint8 // of addresses
	augmented bool  // entries have augmentation data
	signal    bool
	initial   state
	bad       bool
}

// listed notes the functions that the table of .eh_frame_hdr lists (LSB, Core, 10.6.2). It is false if there is no such
// table, or none that can be searched and so would be believed.
func (p *parser) listed(hdr []byte, address uint64) bool {
	r := reader{b: hdr, address: address}
	version, pointer, count, table := r.u8(), r.u8(), r.u8(), r.u8()
	if r.bad || version != 1 || count == peOmit || table == peOmit {
		return false
	}
	r.pointer(pointer, address)
	n := r.pointer(count, address)
	size := uint64(8)
	switch table {
	case peDataRel | peSData4:
	case peDataRel | peSData8:
		size = 16
	default:
		return false
	}
	if r.bad || n == 0 || n > uint64(r.left())/size {
		return false
	}
	p.spans = make([]span, 0, n)
	for range n {
		r.pointer(table, address) // the function's address, which its entry says too
		at := r.pointer(table, address) - p.address
		if at > uint64(len(p.section)) {
			p.table.Unsaid[Malformed]++
			continue
		}
		p.entry(uint32(at))
	}
	return true
}

// scan notes every function of the section.
func (p *parser) scan() {
	for at := 0; at < len(p.section); {
		_, end, ok := p.bounds(uint32(at))
		if !ok {
			p.table.Unsaid[Malformed]++
			return
		}
		p.entry(uint32(at))
		at = int(end)
	}
}

// bounds finds the entry at an offset: where it begins behind its length, and where it ends. An entry of length 0 is a
// terminator; linkers leave them between what came from several files.
func (p *parser) bounds(at uint32) (body, end uint32, ok bool) {
	r := reader{b: p.section, off: int(at)}
	length := uint64(r.u32())
	if length == math.MaxUint32 { // 64-bit DWARF; the CIE pointer stays 4 bytes long in .eh_frame
		length = r.u64()
	}
	if r.bad || length > uint64(r.left()) {
		return 0, 0, false
	}
	return uint32(r.off), uint32(r.off) + uint32(length), true
}

// entry notes the function that the FDE at an offset describes.
func (p *parser) entry(at uint32) {
	body, end, ok := p.bounds(at)
	if !ok {
		p.table.Unsaid[Malformed]++
		return
	}
	if body == end {
		return
	}
	r := reader{b: p.section[:end], off: int(body), address: p.address}
	back := r.u32()
	if back == 0 && !r.bad { // a CIE, which is read when an FDE names it
		return
	}
	if r.bad || back > body {
		p.table.Unsaid[Malformed]++
		return
	}
	c := p.cieAt(body - back)
	if c.bad {
		p.table.Unsaid[Malformed]++
		return
	}
	start := r.pointer(c.encoding, 0)
	length := r.pointer(c.encoding&0xf, 0)
	if c.augmented {
		r.bytes(r.uleb())
	}
	switch {
	case r.bad:
		p.table.Unsaid[Malformed]++
	case start == 0 || length == 0: // dropped by the linker
	case length > math.MaxUint32 || start+length < start:
		p.table.Unsaid[Malformed]++
	default:
		p.spans = append(p.spans, span{start, uint32(length), at, uint32(r.off), end, c})
	}
}

// cieAt reads the CIE at an offset, once.
func (p *parser) cieAt(at uint32) *cie {
	c := p.cies[at]
	if c == nil {
		c = &cie{bad: true}
		p.cies[at] = c
		if body, end, ok := p.bounds(at); ok && p.spend(end-at) {
			c.bad = !p.readCIE(c, reader{b: p.section[:end], off: int(body), address: p.address})
		}
	}
	return c
}

func (p *parser) readCIE(c *cie, r reader) bool {
	if r.u32() != 0 {
		return false
	}
	version := r.u8()
	var augmentation []byte
	for a := r.u8(); a != 0; a = r.u8() {
		augmentation = append(augmentation, a)
	}
	switch version {
	case 1, 3:
	case 4:
		if addressSize, segmentSize := r.u8(), r.u8(); addressSize != 8 || segmentSize != 0 {
			return false
		}
	default:
		return false
	}
	c.codeAlign, c.dataAlign = r.uleb(), r.sleb()
	returnRegister := uint64(0)
	if version == 1 {
		returnRegister = uint64(r.u8())
	} else {
		returnRegister = r.uleb()
	}
	if r.bad || c.codeAlign == 0 || returnRegister != regRA || !c.augment(augmentation, &r) {
		return false
	}
	p.machine = machine{cie: c, end: math.MaxUint64, remembered: p.machine.remembered[:0]}
	if !p.machine.run(&r) {
		return false
	}
	c.initial = p.machine.state
	return true
}

// augment reads the augmentation data that a string announces (LSB, Core, 10.6.1.1.1). Data of an unknown letter and what
// follows is skipped.
func (c *cie) augment(letters []byte, r *reader) bool {
	if len(letters) == 0 {
		return true
	}
	if letters[0] != 'z' {
		return false
	}
	c.augmented = true
	n := r.uleb()
	if r.bad || n > uint64(r.left()) {
		return false
	}
	end := r.off + int(n)
	data := reader{b: r.b[:end], off: r.off, address: r.address}
	r.off = end
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			c.encoding = data.u8()
		case 'P':
			// The personality routine's address, of which only the length matters: it may be relative to anything.
			data.pointer(data.u8()&0x0f, 0)
		case 'L':
			data.u8()
		case 'S':
			c.signal = true
		case 'B', 'G': // arm64: return addresses are signed, the stack is tagged
		default:
			return !data.bad
		}
	}
	return !data.bad
}

// spend takes from the budget.
func (p *parser) spend(bytes uint32) bool {
	p.budget -= int(bytes)
	return p.budget >= 0
}

// finish puts the functions in order and makes rows of them.
func (p *parser) finish() (*Table, error) {
	if len(p.spans) == 0 {
		return nil, ErrNoFunctions
	}
	slices.SortFunc(p.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.entry, b.entry))
	})
	t := p.table
	t.Base = p.spans[0].start &^ 0xfff
	t.Rows = make([]Row, 0, len(p.section)/4) // about what compilers need
	end := p.spans[0].start
	for i, s := range p.spans {
		if i > 0 && s.start == p.spans[i-1].start {
			continue
		}
		if s.start > end {
			t.add(Row{uint32(end - t.Base), bad(NoFDE), BPSame})
		}
		end = s.start + uint64(s.length)
		for _, next := range p.spans[i+1:] {
			if next.start > s.start {
				end = min(end, next.start)
				break
			}
		}
		if end-t.Base > math.MaxUint32 {
			return nil, ErrTooFar
		}
		if !p.spend(s.end - s.entry) {
			return nil, ErrEntriesOverlap
		}
		p.machine = machine{cie: s.cie, table: t, state: s.cie.initial, pc: s.start, end: end, remembered: p.machine.remembered[:0]}
		if !p.machine.run(&reader{b: p.section[:s.end], off: int(s.begin), address: p.address}) {
			p.machine.state = state{cfa: bad(Malformed), ra: raSaved}
		}
		p.machine.emit()
		t.Functions++
		if len(t.Rows) > MaxRows {
			return nil, fmt.Errorf("more than %d: %w", MaxRows, ErrTooManyRows)
		}
	}
	t.add(Row{uint32(end - t.Base), bad(NoFDE), BPSame})
	t.Rows = slices.Clone(t.Rows)
	return t, nil
}

// add appends a row if it says something new.
func (t *Table) add(r Row) {
	n := len(t.Rows)
	if n > 0 && t.Rows[n-1].CFA == r.CFA && t.Rows[n-1].BP == r.BP {
		return
	}
	t.Rows = append(t.Rows, r)
	if reason := r.Reason(); reason > NoFDE {
		t.Unsaid[reason]++
	}
}
