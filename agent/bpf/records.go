package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
)

// StackID names a stack within an account: a hash of its frames.
type StackID struct{ Hi, Lo uint64 }

// NativeFrame is one frame of the native walk.
type NativeFrame struct {
	// PC is where it runs: of the first frame and of the one a signal interrupted the instruction itself, of every
	// other the return address.
	PC uint64
	// CFA is the canonical frame address: the stack pointer before the call that made the frame.
	CFA uint64
	// Return tells whether PC is a return address; the call is just before it.
	Return bool
}

// PythonFrame is one frame of the Python walk.
type PythonFrame struct {
	// Code is the address of the code object; 0 for an interpreter's shim frame, which is no frame of the program.
	Code uint64
	// Instruction says where in it, as the version keeps it: an index (f_lasti) or an address.
	Instruction uint64
	// Anchor is the stack address of the entry marker; 0 if the frame was not entered from C.
	Anchor uint64
	// Identity tells this code object from another at the same address.
	Identity uint64
}

// Piece is a copy of a process's memory.
type Piece struct {
	Address uint64
	Bytes   []byte
}

// Process says that a process made its first call, and which account it got.
type Process struct {
	Account, PID, ParentPID   uint32
	StartBoottime, StartStack uint64
	Comm                      string
}

// Code is a Python code object with what it points to: its head, file name, name, qualified name, line table. A piece
// that could not be read is empty, one that is too long is cut.
type Code struct {
	Account        uint32
	Code, Identity uint64
	Pieces         []Piece
}

// Stack is a stack that was not seen before in its account. Frames are innermost first.
type Stack struct {
	Account, PID, TID uint32
	ID                StackID
	Native            []NativeFrame
	Python            []PythonFrame
	NativeStop        Stop
	PythonStop        Stop
	// PC, SP and BP are the registers at the frame where the native walk stopped; ReturnAddress says whether PC is one.
	PC, SP, BP    uint64
	ReturnAddress bool
	// Copy is the stack's memory from SP up, where user space is to finish the walk.
	Copy []Piece
	// Time is CLOCK_MONOTONIC, in nanoseconds.
	Time uint64
}

// Commit is a change that could not be made in the kernel because the account's lock was not to be had.
type Commit struct {
	Key CounterKey
	By  Change
}

// Records reads what the programs send. It is not safe for concurrent use.
type Records struct {
	reader *ringbuf.Reader
	record ringbuf.Record
	// what has come of stacks whose last record has not
	python map[stackKey][]PythonFrame
	copies map[stackKey][]Piece
}

type stackKey struct {
	account uint32
	id      StackID
}

// Records opens the stream of records. Close it to end a Read that waits.
func (k *Kernel) Records() (*Records, error) {
	r, err := ringbuf.NewReader(k.objects.Records)
	if err != nil {
		return nil, fmt.Errorf("open the ring buffer: %w", err)
	}
	return &Records{reader: r, python: map[stackKey][]PythonFrame{}, copies: map[stackKey][]Piece{}}, nil
}

// Close ends the stream.
func (r *Records) Close() error { return r.reader.Close() }

// Flush makes a Read that waits return os.ErrDeadlineExceeded after what is in the buffer now has been read.
func (r *Records) Flush() error { return r.reader.Flush() }

// Read waits for the next record: a Process, Code, Stack or Commit. It returns os.ErrClosed after Close and
// ringbuf.ErrFlushed after Flush.
func (r *Records) Read() (any, error) {
	for {
		if err := r.reader.ReadInto(&r.record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return nil, os.ErrClosed
			}
			return nil, err
		}
		v, err := r.decode(r.record.RawSample)
		if v != nil || err != nil {
			return v, err
		}
	}
}

func (r *Records) decode(b []byte) (any, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("a record of %d bytes", len(b))
	}
	switch kind := vramprofRecordKind(binary.NativeEndian.Uint32(b)); kind {
	case vramprofRecordKindRECORD_PROCESS:
		p := view[vramprofProcessRecord](b)
		return Process{
			Account: p.Account, PID: p.Tgid, ParentPID: p.Parent, StartBoottime: p.StartBoottime, StartStack: p.StartStack,
			Comm: text(p.Comm[:]),
		}, nil
	case vramprofRecordKindRECORD_CODE:
		return decodeCode(b), nil
	case vramprofRecordKindRECORD_PYTHON:
		p := view[vramprofPythonRecord](b)
		n := (len(b) - int(unsafe.Offsetof(p.Frames))) / pythonFrameSize
		frames := make([]PythonFrame, 0, n)
		for _, f := range p.Frames[:min(n, len(p.Frames))] {
			frames = append(frames, PythonFrame{f.Code, f.Instruction, f.Anchor, f.Identity})
		}
		r.python[stackKey{p.Account, StackID(plainID(p.Id))}] = frames
		return nil, nil
	case vramprofRecordKindRECORD_COPY:
		c := view[vramprofCopyRecord](b)
		key := stackKey{c.Account, plainID(c.Id)}
		n := len(b) - int(unsafe.Offsetof(c.Bytes))
		r.copies[key] = append(r.copies[key], Piece{c.Address, bytes.Clone(b[len(b)-n:])})
		return nil, nil
	case vramprofRecordKindRECORD_STACK:
		return r.stack(b), nil
	case vramprofRecordKindRECORD_COMMIT:
		c := view[vramprofCommitRecord](b)
		return Commit{Key: plainKey(c.Key), By: Change{c.By.InuseBytes, c.By.InuseObjects, c.By.AllocBytes, c.By.AllocObjects}}, nil
	default:
		return nil, fmt.Errorf("a record of unknown kind %d", kind)
	}
}

func (r *Records) stack(b []byte) Stack {
	s := view[vramprofStackRecord](b)
	key := stackKey{s.Account, plainID(s.Id)}
	n := min(int(s.Native), len(s.Frames), (len(b)-int(unsafe.Offsetof(s.Frames)))/nativeFrameSize)
	frames := make([]NativeFrame, 0, n)
	for i, f := range s.Frames[:n] {
		frames = append(frames, NativeFrame{PC: f.Pc, CFA: f.Cfa &^ 1, Return: i > 0 && f.Cfa&1 == 0})
	}
	out := Stack{
		Account: s.Account, PID: s.Tgid, TID: s.Tid, ID: key.id, Native: frames, Python: r.python[key],
		NativeStop: Stop(s.NativeStop), PythonStop: Stop(s.PythonStop),
		PC: s.Pc, SP: s.Sp, BP: s.Bp, ReturnAddress: s.Ra != 0, Copy: r.copies[key], Time: s.Time,
	}
	delete(r.python, key)
	delete(r.copies, key)
	return out
}

func decodeCode(b []byte) Code {
	c := view[vramprofCodeRecord](b)
	head := unsafe.Offsetof(c.Head)
	at := [...]uintptr{head, unsafe.Offsetof(c.Strings), unsafe.Offsetof(c.Strings) + codeString, unsafe.Offsetof(c.Strings) + 2*codeString, unsafe.Offsetof(c.Table)}
	out := Code{Account: c.Account, Code: c.Code, Identity: c.Identity}
	for i, from := range at {
		to := min(from+uintptr(c.Length[i]), uintptr(len(b)))
		out.Pieces = append(out.Pieces, Piece{c.Address[i], bytes.Clone(b[min(from, to):to])})
	}
	return out
}

// view reads a record as the struct that its beginning is. Records may end before the struct does: the bytes are copied
// into one of full size.
func view[T any](b []byte) *T {
	var v T
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b)
	return &v
}

func plainID(id vramprofStackId) StackID { return StackID{id.Hi, id.Lo} }

func text(c []int8) string {
	b := make([]byte, 0, len(c))
	for _, x := range c {
		if x == 0 {
			break
		}
		b = append(b, byte(x))
	}
	return string(b)
}
