package bpf

// slots hands out the indices of a map's array, from 1: 0 means none. An index that was given back is handed out again
// last of all, so that a program that still works with it has long ended.
type slots struct {
	next, max uint32
	free      []uint32
}

func (s *slots) take() (uint32, bool) {
	if s.next+1 < s.max {
		s.next++
		return s.next, true
	}
	if len(s.free) == 0 {
		return 0, false
	}
	i := s.free[0]
	s.free = s.free[1:]
	return i, true
}

func (s *slots) put(i uint32) { s.free = append(s.free, i) }
