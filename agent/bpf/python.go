package bpf

import "github.com/vramprof/vramprof/internal/cpython"

// Python is how the programs read the Python threads of one process.
type Python struct{ value vramprofPython }

// noCFrameField says that the frame is in the thread state (cf_frame in c/layout.h).
const noCFrameField = 0xffff

// identityEnd is the size of the last field, the line table's pointer, of the part of a code object that tells it from
// others where there is no co_version.
const identityEnd = 8

// NewPython says how to read the interpreter whose _PyRuntime is at an address of the process.
func NewPython(l cpython.Layout, runtime uint64) *Python {
	v := vramprofPython{
		Key:        runtime + l.AutoTSSKey,
		ThreadKeys: cpython.ThreadKeys,
		TsFrame:    l.Thread.Frame, TsCframe: l.Thread.CFrame,
		CfFrame: l.CFrame.Current, CfPrevious: l.CFrame.Previous,
		F_size: l.Frame.Size, F_previous: l.Frame.Previous, F_code: l.Frame.Code, F_instruction: l.Frame.Instruction, F_entry: l.Frame.EntryAt,
		InstructionSize: l.Frame.InstructionSize, EntryKind: uint8(l.Frame.Entry), EntryValue: l.Frame.EntryValue, CodeTag: l.Frame.CodeTag,
		CodeFirst: l.Code.FirstLine &^ 7, CodeLast: l.Code.LineTable + identityEnd, CodeSize: l.Code.Size,
		CodeFilename: l.Code.Filename, CodeName: l.Code.Name, CodeQualname: l.Code.QualName, CodeTable: l.Code.LineTable,
		StringHead: l.String.Other, StringLength: uint8(l.String.Length), BytesHead: l.Bytes.Data,
	}
	if l.Thread.HasFrame {
		v.CfFrame = noCFrameField
	}
	if l.Code.QualName == 0 {
		v.CodeQualname = l.Code.Name
	}
	if l.Code.Version != 0 {
		v.CodeFirst = l.Code.Version &^ 7
		v.CodeLast = v.CodeFirst + 8
	} else {
		v.Deep = 1
	}
	return &Python{v}
}
