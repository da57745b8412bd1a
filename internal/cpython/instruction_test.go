package cpython

import "testing"

func TestInstructionOffset(t *testing.T) {
	const code = 0x7f0000001000
	layout := func(minor int, tag uint8) Layout {
		l := Layout{Frame: Frame{InstructionSize: 8, CodeTag: tag}, Code: CodeObject{Bytecode: 200}}
		if minor == 10 {
			l.Frame.InstructionSize = 4
		}
		return l
	}
	for _, test := range []struct {
		name   string
		layout Layout
		code   uint64
		word   uint64
		want   uint32
		ok     bool
	}{
		{"3.10: an index", layout(10, 0), code, 21, 42, true},
		{"3.10: not begun", layout(10, 0), code, 0xffffffff, 0, true},
		{"3.10: no index", layout(10, 0), code, 0x80000000, 0, false},
		{"3.10: too high", layout(10, 0), code, 0x7fffffff, 0, false},
		{"an address", layout(12, 0), code, code + 200 + 42, 42, true},
		{"the first instruction", layout(12, 0), code, code + 200, 0, true},
		{"not begun", layout(12, 0), code, code + 198, 0, true},
		{"inside the header", layout(12, 0), code, code + 100, 0, false},
		{"between instructions", layout(12, 0), code, code + 203, 0, false},
		{"of another code object", layout(12, 0), code, code + 1<<40, 0, false},
		{"null", layout(12, 0), code, 0, 0, false},
		{"tagged code", layout(14, 7), code | 1, code + 200 + 42, 42, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := InstructionOffset(test.layout, test.code, test.word); got != test.want || ok != test.ok {
				t.Errorf("%d %t, want %d %t", got, ok, test.want, test.ok)
			}
		})
	}
}
