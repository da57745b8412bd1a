package symbols

// question is what one Resolve wants to know, each place once.
type question struct {
	native  []Native
	python  []Python
	places  [kinds][]place // of native and python, by index
	open    map[place]bool
	known   map[place]Location
	names   map[object]string // base names of native objects
	codes   map[object]*Code
	objects []object // in the order in which they were first named
}

func newQuestion(native []Native, python []Python) *question {
	q := &question{
		native: native, python: python,
		open: map[place]bool{}, known: map[place]Location{}, names: map[object]string{}, codes: map[object]*Code{},
	}
	for _, n := range native {
		p := place{object{NativeKind, n.BuildID}, n.Address}
		q.places[NativeKind] = append(q.places[NativeKind], p)
		if n.BuildID == "" {
			q.known[p] = Location{Outcome: Unnamed}
			continue
		}
		q.open[p] = true
		if _, ok := q.names[p.object]; !ok {
			q.names[p.object] = n.Object
			q.objects = append(q.objects, p.object)
		}
	}
	digests := map[*Code]string{}
	for _, n := range python {
		digest, ok := digests[n.Code]
		if !ok {
			digest = n.Code.digest()
			digests[n.Code] = digest
		}
		p := place{object{PythonKind, digest}, uint64(n.Instruction)}
		q.places[PythonKind] = append(q.places[PythonKind], p)
		q.open[p] = true
		if q.codes[p.object] == nil {
			q.codes[p.object] = n.Code
			q.objects = append(q.objects, p.object)
		}
	}
	return q
}

func (q *question) close(p place, l Location) {
	q.known[p] = l
	delete(q.open, p)
}

// wanted are the objects of open places.
func (q *question) wanted() []object {
	open := map[object]bool{}
	for p := range q.open {
		open[p.object] = true
	}
	var out []object
	for _, o := range q.objects {
		if open[o] {
			out = append(out, o)
		}
	}
	return out
}

// answer gives a location for every place that was asked for.
func (q *question) answer() (native, python []Location) {
	native, python = make([]Location, len(q.native)), make([]Location, len(q.python))
	for i, p := range q.places[NativeKind] {
		native[i] = q.location(p)
	}
	for i, p := range q.places[PythonKind] {
		python[i] = q.location(p)
		if python[i].Outcome != Resolved {
			python[i] = q.python[i].Code.fallback(python[i].Outcome)
		}
	}
	return native, python
}

func (q *question) location(p place) Location {
	l, ok := q.known[p]
	if !ok {
		l.Outcome = Unreachable
	}
	return l
}
