package ehframe

import "math"

// DWARF numbers of the registers that matter.
const (
	regBP = 6
	regSP = 7
	regRA = 16
)

// maxRemembered bounds the stack of DW_CFA_remember_state. Compilers use one or two.
const maxRemembered = 1024

// state is the rules in force at an address.
type state struct {
	cfaOffset   int64
	bpOffset    int64
	cfaRegister uint8
	bp          bpRule
	ra          raRule
	spMoved     bool
	cfa         uint16 // a whole Row.CFA, of an expression; 0: register and offset
}

type bpRule uint8

const (
	bpSame bpRule = iota
	bpSaved
	bpLost
	bpAtBP
	bpSignal // in the kernel's signal frame
)

type raRule uint8

const (
	raUnset raRule = iota
	raSaved        // right below the CFA, where a call puts it
	raUndefined
	raMoved
	raSignal
)

// machine runs the call frame instructions of one entry (DWARF 5, 6.4.2).
type machine struct {
	cie        *cie
	table      *Table // nil for a CIE's instructions, which are for no address
	state      state
	pc, end    uint64
	remembered []state
}

// emit notes the row for the addresses from pc on.
func (m *machine) emit() {
	if m.table == nil || m.pc >= m.end {
		return
	}
	row := m.state.row(m.cie.signal)
	row.PC = uint32(m.pc - m.table.Base)
	m.table.add(row)
}

func (m *machine) advance(units uint64) {
	if units == 0 {
		return
	}
	m.emit()
	if by := units * m.cie.codeAlign; m.cie.codeAlign <= math.MaxUint32 && by < m.end-m.pc {
		m.pc += by
	} else {
		m.pc = m.end // rules past the function's end are for no address
	}
}

// run is false if an instruction is unknown or cut.
func (m *machine) run(r *reader) bool {
	s := &m.state
	for r.off < len(r.b) && !r.bad && m.pc < m.end {
		op := r.u8()
		low := uint64(op & 0x3f)
		switch op & 0xc0 {
		case 0x40: // DW_CFA_advance_loc
			m.advance(low)
			continue
		case 0x80: // DW_CFA_offset
			s.saved(low, int64(r.uleb())*m.cie.dataAlign)
			continue
		case 0xc0: // DW_CFA_restore
			s.restore(low, &m.cie.initial)
			continue
		}
		switch op {
		case 0x00: // DW_CFA_nop
		case 0x01: // DW_CFA_set_loc
			if to := r.pointer(m.cie.encoding, 0); to > m.pc {
				m.emit()
				m.pc = min(to, m.end)
			}
		case 0x02: // DW_CFA_advance_loc1
			m.advance(uint64(r.u8()))
		case 0x03: // DW_CFA_advance_loc2
			m.advance(uint64(r.u16()))
		case 0x04: // DW_CFA_advance_loc4
			m.advance(uint64(r.u32()))
		case 0x05: // DW_CFA_offset_extended
			register := r.uleb()
			s.saved(register, int64(r.uleb())*m.cie.dataAlign)
		case 0x06: // DW_CFA_restore_extended
			s.restore(r.uleb(), &m.cie.initial)
		case 0x07: // DW_CFA_undefined
			s.set(r.uleb(), bpLost, raUndefined)
		case 0x08: // DW_CFA_same_value
			s.set(r.uleb(), bpSame, raMoved)
		case 0x09: // DW_CFA_register
			register := r.uleb()
			r.uleb()
			s.set(register, bpLost, raMoved)
		case 0x0a: // DW_CFA_remember_state
			if len(m.remembered) == maxRemembered {
				return false
			}
			m.remembered = append(m.remembered, *s)
		case 0x0b: // DW_CFA_restore_state
			n := len(m.remembered)
			if n == 0 {
				return false
			}
			*s, m.remembered = m.remembered[n-1], m.remembered[:n-1]
		case 0x0c: // DW_CFA_def_cfa
			register := r.uleb()
			s.define(register, int64(r.uleb()))
		case 0x0d: // DW_CFA_def_cfa_register
			s.define(r.uleb(), s.cfaOffset)
		case 0x0e: // DW_CFA_def_cfa_offset
			s.cfaOffset = int64(r.uleb())
		case 0x0f: // DW_CFA_def_cfa_expression
			s.cfa = cfaExpression(r.bytes(r.uleb()))
		case 0x10: // DW_CFA_expression
			register := r.uleb()
			s.expression(register, r.bytes(r.uleb()))
		case 0x11: // DW_CFA_offset_extended_sf
			register := r.uleb()
			s.saved(register, r.sleb()*m.cie.dataAlign)
		case 0x12: // DW_CFA_def_cfa_sf
			register := r.uleb()
			s.define(register, r.sleb()*m.cie.dataAlign)
		case 0x13: // DW_CFA_def_cfa_offset_sf
			s.cfaOffset = r.sleb() * m.cie.dataAlign
		case 0x14, 0x15: // DW_CFA_val_offset, DW_CFA_val_offset_sf
			register := r.uleb()
			r.uleb()
			s.set(register, bpLost, raMoved)
		case 0x16: // DW_CFA_val_expression
			register := r.uleb()
			r.bytes(r.uleb())
			s.set(register, bpLost, raMoved)
		case 0x2e: // DW_CFA_GNU_args_size: what was pushed for a call, which the CFA accounts for already
			r.uleb()
		case 0x2f: // DW_CFA_GNU_negative_offset_extended
			register := r.uleb()
			s.saved(register, -int64(r.uleb())*m.cie.dataAlign)
		default:
			return false
		}
	}
	return !r.bad
}

func (s *state) define(register uint64, offset int64) {
	s.cfaRegister, s.cfaOffset, s.cfa = uint8(min(register, math.MaxUint8)), offset, 0
}

func (s *state) saved(register uint64, offset int64) {
	switch register {
	case regBP:
		s.bp, s.bpOffset = bpSaved, offset
	case regSP:
		s.spMoved = true
	case regRA:
		s.ra = raMoved
		if offset == -8 {
			s.ra = raSaved
		}
	}
}

func (s *state) restore(register uint64, to *state) {
	switch register {
	case regBP:
		s.bp, s.bpOffset = to.bp, to.bpOffset
	case regSP:
		s.spMoved = to.spMoved
	case regRA:
		s.ra = to.ra
	}
}

func (s *state) set(register uint64, bp bpRule, ra raRule) {
	switch register {
	case regBP:
		s.bp = bp
	case regSP:
		s.spMoved = true
	case regRA:
		s.ra = ra
	}
}

// row gives the rules as a row; its PC is the caller's to set.
func (s *state) row(signal bool) Row {
	switch {
	case s.cfa == bad(Malformed):
		return Row{CFA: s.cfa, BP: BPSame}
	case signal && s.ra == raSignal && s.bp == bpSignal && s.cfa == sigframeCFA:
		return Row{CFA: uint16(Signal), BP: BPSame}
	case signal:
		return Row{CFA: bad(SignalLayout), BP: BPSame}
	case s.ra == raUndefined:
		return Row{CFA: uint16(End), BP: BPSame}
	case s.ra != raSaved || s.spMoved:
		return Row{CFA: bad(ReturnMoved), BP: BPSame}
	}
	bp := int16(BPSame)
	switch s.bp {
	case bpSaved:
		if s.bpOffset < math.MinInt16 || s.bpOffset >= BPAtBP {
			return Row{CFA: bad(LargeOffset), BP: BPSame}
		}
		bp = int16(s.bpOffset)
	case bpLost, bpSignal:
		bp = BPUndefined
	case bpAtBP:
		bp = BPAtBP
	}
	cfa := s.cfa
	if cfa == 0 {
		row, ok := s.registerCFA(bp)
		if ok {
			return row
		}
		cfa = row.CFA
	}
	if Kind(cfa&7) == Bad {
		bp = BPSame
	}
	return Row{CFA: cfa, BP: bp}
}

func (s *state) registerCFA(bp int16) (Row, bool) {
	kind := SP
	switch s.cfaRegister {
	case regSP:
	case regBP:
		kind = BP
	default:
		return Row{CFA: bad(RegisterCFA)}, false
	}
	if s.cfaOffset >= 0 && s.cfaOffset%8 == 0 && s.cfaOffset < 1<<16 {
		return Row{CFA: uint16(s.cfaOffset) | uint16(kind), BP: bp}, true
	}
	if row, ok := large(s.cfaOffset, bp); ok && kind == SP {
		return row, true
	}
	return Row{CFA: bad(LargeOffset)}, false
}
