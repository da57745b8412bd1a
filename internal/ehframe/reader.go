package ehframe

import "encoding/binary"

// reader walks bytes at a known address. A read past the end gives 0 and sets bad, which is looked at once at the end.
type reader struct {
	b       []byte
	off     int
	address uint64 // of b[0]
	bad     bool
}

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(r.left()) {
		r.bad, r.off = true, len(r.b)
		return nil
	}
	b := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return b
}

func (r *reader) u8() uint8 {
	if r.off < len(r.b) {
		c := r.b[r.off]
		r.off++
		return c
	}
	r.bad = true
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uleb() uint64 {
	if r.off < len(r.b) && r.b[r.off] < 0x80 {
		c := r.b[r.off]
		r.off++
		return uint64(c)
	}
	v, _ := r.leb()
	return v
}

func (r *reader) sleb() int64 {
	v, shift := r.leb()
	if shift < 64 && v>>(shift-1)&1 != 0 {
		v |= ^uint64(0) << shift
	}
	return int64(v)
}

// leb reads an LEB128 number and the number of bits that it was written with. Bits past the 64th are lost.
func (r *reader) leb() (v uint64, shift uint) {
	for {
		c := r.u8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		shift += 7
		if c < 0x80 {
			return v, shift
		}
	}
}

// DW_EH_PE encodings of pointers (LSB, Core, 10.5.1).
const (
	peOmit    = 0xff
	pePCRel   = 0x10
	peDataRel = 0x30
	peAligned = 0x50
	peSData4  = 0x0b
	peSData8  = 0x0c
)

// pointer reads an encoded address; data is what DW_EH_PE_datarel counts from. Encodings that need more than that, an
// indirection among them, are bad: linkers write none for the addresses of functions. What is written as 0 is 0 whatever
// it counts from: the address of a function that the linker dropped.
func (r *reader) pointer(encoding uint8, data uint64) uint64 {
	if encoding == peAligned {
		r.bytes(-(r.address + uint64(r.off)) & 7)
		encoding = 0
	}
	at := r.address + uint64(r.off)
	var v uint64
	switch encoding & 0xf {
	case 0x0, 0x4, peSData8:
		v = r.u64()
	case 0x2:
		v = uint64(r.u16())
	case 0xa:
		v = uint64(int64(int16(r.u16())))
	case 0x3:
		v = uint64(r.u32())
	case peSData4:
		v = uint64(int64(int32(r.u32())))
	case 0x1:
		v = r.uleb()
	case 0x9:
		v = uint64(r.sleb())
	default:
		r.bad = true
	}
	switch encoding & 0xf0 {
	case 0:
	case pePCRel:
		if v != 0 {
			v += at
		}
	case peDataRel:
		if data == 0 {
			r.bad = true
		}
		v += data
	default:
		r.bad = true
	}
	return v
}
