package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

const (
	spaceChunk  = 64 // SPACE_CHUNK
	spaceChunks = 64 // SPACE_CHUNKS
	// MaxMappings is how many executable mappings of one process the kernel half knows.
	MaxMappings = spaceChunk * spaceChunks
	// never is above every user address and below 2^63, as the search in c/native.h wants it.
	never = 1<<63 - 1
)

// Mapping is one executable mapping of a process.
type Mapping struct {
	Start, End uint64
	// Base is what to take from an address in the mapping to get the address in the rows' numbering.
	Base uint64
	// Rows are the file's; the zero value means that there are none yet, and that user space finishes the stack.
	Rows Rows
}

// Image is a process's program as it is mapped.
type Image struct {
	// StartStack is field 28 of /proc/PID/stat, mm->start_stack: it tells an exec'd program from the one before, and
	// is the same in a forked child.
	StartStack uint64
	// Mappings are sorted by Start and do not overlap. None means that they are not known yet.
	Mappings []Mapping
	// Python is how to read its Python threads; nil for none.
	Python *Python
}

// SetImage tells the programs how to unwind process tgid, from its next event on. It takes as long as LoadRows says. Two
// calls for one process may not run at a time.
func (k *Kernel) SetImage(tgid uint32, image Image) error {
	if len(image.Mappings) > MaxMappings {
		return fmt.Errorf("process %d has %d executable mappings and there is room for %d: %w", tgid, len(image.Mappings), MaxMappings, ErrNoRoom)
	}
	chunks := (len(image.Mappings) + spaceChunk - 1) / spaceChunk
	value := vramprofImage{StartStack: image.StartStack, Chunks: uint32(chunks)}
	if image.Python != nil {
		value.Python = image.Python.value
	}
	space := make([]vramprofMapping, chunks*spaceChunk)
	for i := range space {
		space[i] = vramprofMapping{Start: never, End: never}
		if i < len(image.Mappings) {
			m := image.Mappings[i]
			space[i] = vramprofMapping{Start: m.Start, End: m.End, Base: m.Base, Table: m.Rows.id, Indexes: m.Rows.indexes}
		}
	}
	for i := range value.First {
		value.First[i] = never
		if i < chunks {
			value.First[i] = space[i*spaceChunk].Start
		}
	}

	k.mu.Lock()
	slot := k.images[tgid]
	if chunks > 0 && slot == 0 {
		var ok bool
		if slot, ok = k.spaces.take(); !ok {
			k.mu.Unlock()
			return fmt.Errorf("mappings of more than %d processes: %w", k.spaces.max, ErrNoRoom)
		}
		k.images[tgid] = slot
	}
	k.mu.Unlock()
	if chunks > 0 {
		m, err := innerArray(chunks, spaceChunk*mappingSize, bytesOf(space))
		if err != nil {
			return fmt.Errorf("mappings of process %d: %w", tgid, err)
		}
		defer m.Close() // the outer map holds it
		if err := k.objects.Spaces.Put(slot, m); err != nil {
			return fmt.Errorf("publish mappings of process %d: %w", tgid, err)
		}
	}
	value.Space = slot
	return k.putImage(tgid, &value)
}

// SetPython tells the programs at once how to walk the Python threads of a process whose mappings they do not know yet. If
// they do, SetImage is to say both.
func (k *Kernel) SetPython(tgid uint32, startStack uint64, p *Python) error {
	k.mu.Lock()
	slot := k.images[tgid]
	k.mu.Unlock()
	if slot != 0 {
		return nil
	}
	return k.putImage(tgid, &vramprofImage{StartStack: startStack, Python: p.value})
}

func (k *Kernel) putImage(tgid uint32, value *vramprofImage) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	value.Generation = k.generation
	if err := k.objects.Images.Put(tgid, value); err != nil {
		return fmt.Errorf("publish image of process %d: %w", tgid, err)
	}
	return nil
}

// DeleteImage forgets a process that is gone or runs another program. One that is not known is no error.
func (k *Kernel) DeleteImage(tgid uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.objects.Images.Delete(tgid)
	if slot := k.images[tgid]; slot != 0 {
		delete(k.images, tgid)
		k.deletions.Go(func() { // takes as long as a Put does
			if err := k.objects.Spaces.Delete(slot); err != nil {
				return // the place stays taken
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.spaces.put(slot)
		})
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget process %d: %w", tgid, err)
	}
	return nil
}
