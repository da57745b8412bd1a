package agent

import (
	"fmt"
	"path"

	"github.com/vramprof/vramprof/agent/bpf"
	"github.com/vramprof/vramprof/agent/objects"
	"github.com/vramprof/vramprof/agent/process"
	merge "github.com/vramprof/vramprof/agent/stack"
	"github.com/vramprof/vramprof/internal/cpython"
)

// stack is one stack as places in files and code objects, innermost first. Many of the kernel half's stacks may be one:
// it tells them apart by address, and by every copy.
type stack struct {
	frames []frame
}

// frame is one place: in an object, in a code object, or a remark in brackets.
type frame struct {
	object      *objects.Object // nil: not opened
	file        string          // the object's base name
	address     uint64          // in the object's own numbering, inside the instruction; without an object, in the file
	code        *code
	instruction uint32
	remark      string
}

// resolve turns a stack's addresses into places.
func (a *Agent) resolve(s bpf.Stack) *stack {
	p := a.table.Get(s.PID)
	if p == nil {
		a.health.Truncated["process gone"]++
		return &stack{frames: []frame{{remark: "[truncated: process gone]"}}}
	}
	program := p.At(s.Time)
	native, reason := s.Native, ""
	switch {
	case len(s.Copy) > 0:
		native, reason = a.finish(s, program)
	case s.NativeStop != bpf.Complete:
		reason = a.where(s.NativeStop.String(), native, program)
	}
	out := &stack{}
	placed := true
	for _, f := range merge.Merge(nativeFrames(native), a.pythonFrames(s)) {
		if f.Unplaced && placed {
			placed = false
			a.health.Truncated["python not placed"]++
			out.frames = append(out.frames, frame{remark: "[python frames not placed among the native ones]"})
		}
		switch {
		case f.Python >= 0:
			out.frames = append(out.frames, a.pythonFrame(s, s.Python[f.Python]))
		default:
			out.frames = append(out.frames, a.nativeFrame(s.PID, native[f.Native], program))
		}
	}
	if s.PythonStop != bpf.Complete && s.PythonStop != bpf.NoPython && a.hasPython(s.Account) {
		a.health.Truncated["python: "+s.PythonStop.String()]++
		out.frames = append(out.frames, frame{remark: "[truncated: python: " + s.PythonStop.String() + "]"})
	}
	if reason != "" {
		a.health.Truncated[reason]++
		out.frames = append(out.frames, frame{remark: "[truncated: " + reason + "]"})
	}
	return out
}

func (a *Agent) hasPython(number uint32) bool {
	of := a.accounts[number].process
	return of != nil && of.interpreter != nil
}

func (a *Agent) nativeFrame(pid uint32, f bpf.NativeFrame, program *process.Program) frame {
	at := f.PC
	if f.Return {
		at--
	}
	m, ok := program.Find(at)
	if !ok {
		return frame{remark: "[unmapped]"}
	}
	if m.Path == "" {
		return frame{remark: "[anonymous code]"}
	}
	out := frame{file: path.Base(m.Path), address: at - m.Start + m.Offset}
	o, err := a.object(pid, m)
	if o == nil || err != nil {
		return out
	}
	if bias, ok := o.LoadBias(m.Start, m.Offset); ok {
		out.object, out.address = o, at-bias
	}
	return out
}

func (a *Agent) pythonFrame(s bpf.Stack, f bpf.PythonFrame) frame {
	c := a.codes[codeKey{s.Account, f.Code, f.Identity}]
	if c == nil || c.err != nil {
		return frame{remark: "[python code not readable]"}
	}
	instruction, ok := cpython.InstructionOffset(c.layout, f.Code, f.Instruction)
	if !ok {
		return frame{remark: fmt.Sprintf("[%s: instruction out of range]", c.symbol.QualName)}
	}
	return frame{code: c, instruction: instruction}
}

func nativeFrames(in []bpf.NativeFrame) []merge.Native {
	out := make([]merge.Native, 0, len(in))
	for _, f := range in {
		out = append(out, merge.Native{CFA: f.CFA})
	}
	return out
}

func (a *Agent) pythonFrames(s bpf.Stack) []merge.Python {
	out := make([]merge.Python, 0, len(s.Python))
	for _, f := range s.Python {
		c := a.codes[codeKey{s.Account, f.Code, f.Identity}]
		out = append(out, merge.Python{Anchor: f.Anchor, Shim: f.Code == 0 || c != nil && c.internal})
	}
	return out
}
