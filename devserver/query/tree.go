package query

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/devserver/store"
)

// The two sides of a comparison. A flame graph of one selection has it on the right.
const (
	left  = 0
	right = 1
)

// node is a function as called from its parent, over both sides: a tree of them is a flame graph.
type node struct {
	name        string
	total, self [2]int64
	children    map[string]*node
	last        *node // the child asked for last: profiles of a series repeat their stacks, most often in the same order
}

// add grows the tree under n by one stack, innermost frame first.
func (n *node) add(stack []store.Frame, side int, value int64) {
	n.total[side] += value
	for _, frame := range slices.Backward(stack) {
		n = n.child(nameOf(frame))
		n.total[side] += value
	}
	n.self[side] += value
}

func (n *node) child(name string) *node {
	if n.last != nil && n.last.name == name {
		return n.last
	}
	child := n.children[name]
	if child == nil {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		child = &node{name: name}
		n.children[name] = child
	}
	n.last = child
	return child
}

// nameOf is what a flame graph calls a frame. One without a function still has a name, so that its bytes are shown.
func nameOf(f store.Frame) string { return cmp.Or(f.Function, f.SystemName, f.Mapping, "unknown") }

func (n *node) width() int64 { return n.total[left] + n.total[right] }

// sorted are the children in the order they are drawn in: by name, so that a refresh moves nothing.
func (n *node) sorted() []*node {
	return slices.SortedFunc(maps.Values(n.children), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
}

// prune keeps the limit widest nodes below n, and gives what is under each cut to one child named "other", so that no total
// changes. A parent is kept before its child: it is never narrower, and it is met first.
func (n *node) prune(limit int) {
	all := []*node{n}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].sorted()...)
	}
	if len(all)-1 <= limit {
		return
	}
	order := slices.Clone(all[1:])
	slices.SortStableFunc(order, func(a, b *node) int { return cmp.Compare(b.width(), a.width()) })
	dropped := make(map[*node]bool, len(order)-limit)
	for _, d := range order[limit:] {
		dropped[d] = true
	}
	for _, kept := range all {
		if dropped[kept] {
			continue
		}
		var lost [2]int64
		kept.last = nil
		for name, child := range kept.children {
			if dropped[child] {
				lost[left] += child.total[left]
				lost[right] += child.total[right]
				delete(kept.children, name)
			}
		}
		if lost == [2]int64{} {
			continue
		}
		other := kept.child("other")
		for side := range lost {
			other.total[side] += lost[side]
			other.self[side] += lost[side]
		}
	}
}
