package symbols

import (
	"strings"

	symbolizerv1 "github.com/vramprof/vramprof/gen/vramprof/symbolizer/v1"
	"github.com/vramprof/vramprof/internal/codedigest"
)

// Native is a place in an ELF file.
type Native struct {
	// BuildID is the file's elfobj.Identity: "gnu:" or "sha256:" and hexadecimal digits. Without one nothing is asked.
	BuildID string
	// Object is the file's base name, to show.
	Object string
	// Address is in the file's own numbering and inside the instruction that was running: of a return address, one less.
	Address uint64
}

// Python is a place in a code object.
type Python struct {
	Code *Code // never nil
	// Instruction is in bytes from the start of the bytecode.
	Instruction uint32
}

// Code is what a traceback needs of a code object of CPython 3.
type Code struct {
	MinorVersion int
	// Filename, QualName (Name before 3.11) and Name are UTF-8.
	Filename, QualName, Name string
	FirstLine                int32
	LineTable                []byte
}

// Location is what is known of a place.
type Location struct {
	// Lines are the functions at the place, the innermost inlined call first. Unless Outcome is Resolved there is none for a
	// native place, which has no better name than its object and address, and one for a Python place: its function and file,
	// with Line 0, since a wrong line is worse than none.
	Lines   []Line
	Outcome Outcome
}

// Line is one function at a place.
type Line struct {
	Function string
	// SystemName is the mangled name, where it differs.
	SystemName string
	File       string
	// Line and StartLine, of the function, are 0 where unknown.
	Line, StartLine int32
}

// Outcome says how well a place is known. Its text is a metric label.
type Outcome int

// The outcomes.
const (
	Resolved    Outcome = iota
	NoSymbol            // the service knows the file, and no symbol covers the address
	Missing             // the service has not got the file or code object (yet)
	Unusable            // the service cannot read the file or code object
	Unnamed             // the file has no identity to ask by
	Unreachable         // the service did not answer in time
	outcomes
)

func (o Outcome) String() string {
	return [...]string{"resolved", "no_symbol", "missing", "unusable", "unnamed", "unreachable"}[o]
}

// Kind tells places and uploads of one language from the other's. Its text is a metric label.
type Kind int

// The kinds.
const (
	NativeKind Kind = iota
	PythonKind
	kinds
)

func (k Kind) String() string { return [...]string{"native", "python"}[k] }

// object names what the service has or lacks: a build ID, or the 32 bytes of a code object's digest.
type object struct {
	kind Kind
	id   string
}

// place is the key of a location.
type place struct {
	object
	at uint64
}

func (c *Code) message() *symbolizerv1.PythonCode {
	return &symbolizerv1.PythonCode{
		MinorVersion: uint32(c.MinorVersion), Filename: valid(c.Filename), Qualname: valid(c.QualName), Name: valid(c.Name),
		FirstLine: c.FirstLine, LineTable: c.LineTable,
	}
}

func (c *Code) digest() string {
	d := codedigest.Digest(c.MinorVersion, valid(c.Filename), valid(c.QualName), valid(c.Name), c.FirstLine, c.LineTable)
	return string(d[:])
}

// fallback is what is known of a code object's instructions without the service.
func (c *Code) fallback(o Outcome) Location {
	return Location{Lines: []Line{{Function: valid(c.QualName), File: valid(c.Filename), StartLine: max(c.FirstLine, 0)}}, Outcome: o}
}

// valid makes text what protobuf takes for text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func locationOf(l *symbolizerv1.Location) Location {
	out := Location{Lines: make([]Line, 0, len(l.GetLines()))}
	for _, n := range l.GetLines() {
		out.Lines = append(out.Lines, Line{Function: n.GetFunction(), SystemName: n.GetSystemName(), File: n.GetFile(), Line: n.GetLine(), StartLine: n.GetStartLine()})
	}
	return out
}
