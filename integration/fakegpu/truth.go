package fakegpu

// Truth is what some calls amount to.
type Truth struct {
	// Alloc is what was allocated, Failed what was refused with CUDA_ERROR_OUT_OF_MEMORY; a call that failed otherwise
	// is in neither.
	Alloc, Failed Amount
	// InUse is what was allocated and has not ended, as long as the processes live.
	InUse Amount
	// Peak is the most bytes that were in use at a time, and the number of allocations then. It is meaningful for the
	// calls of one process only.
	Peak Amount
}

// Sum adds up calls by class of memory. Filter the calls for one process, one thread or one function.
func Sum(calls []Call) map[string]Truth {
	byClass := map[string]Truth{}
	for _, c := range calls {
		touched := map[string]bool{}
		if c.Class != "" {
			touched[c.Class] = true
		}
		for class := range c.Freed {
			touched[class] = true
		}
		for class := range touched {
			t := byClass[class]
			t.apply(c, func(of string) bool { return of == class })
			byClass[class] = t
		}
	}
	return byClass
}

// Total adds up calls over the classes given, or over all classes.
func Total(calls []Call, classes ...string) Truth {
	var t Truth
	for _, c := range calls {
		t.apply(c, func(of string) bool {
			for _, class := range classes {
				if class == of {
					return true
				}
			}
			return len(classes) == 0
		})
	}
	return t
}

const (
	success     = 0
	outOfMemory = 2
)

func (t *Truth) apply(c Call, counts func(class string) bool) {
	for class, ended := range c.Freed {
		if counts(class) {
			t.InUse.Bytes -= ended.Bytes
			t.InUse.Objects -= ended.Objects
		}
	}
	if c.Class == "" || !counts(c.Class) {
		return
	}
	switch c.Result {
	case success:
		t.Alloc.add(c.Size)
		t.InUse.add(c.Size)
	case outOfMemory:
		t.Failed.add(c.Size)
	}
	if t.InUse.Bytes > t.Peak.Bytes {
		t.Peak = t.InUse
	}
}

func (a *Amount) add(bytes uint64) {
	a.Bytes += bytes
	a.Objects++
}

// OfProcess keeps the calls of one process, numbered as it sees itself.
func OfProcess(calls []Call, pid int) []Call {
	var own []Call
	for _, c := range calls {
		if c.PID == pid {
			own = append(own, c)
		}
	}
	return own
}
