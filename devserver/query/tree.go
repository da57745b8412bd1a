package query

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/profiles"
)

// The two sides of a comparison. A flame graph of one selection has it on the right.
const (
	left  = 0
	right = 1
)

// tree is a flame graph: functions as called from their parents, over both sides.
type tree struct {
	root     node
	ids      map[string]uint32 // of names
	children map[edge]*node
	// Scratch of add: the name of each frame of the profile at hand.
	names []name
	// Nodes that are not in the tree yet: they are made many at a time.
	spare []node
}

type edge struct {
	parent *node
	name   uint32
}

type name struct {
	id   uint32
	text string
}

type node struct {
	name
	total, self [2]int64
	first, next *node // child and sibling
	last        *node // the child asked for last, which is most often the next one too
}

// add grows the tree by a profile.
func (t *tree) add(p *profiles.Selected, side int) {
	t.names = t.names[:0]
	for _, f := range p.Frames {
		t.names = append(t.names, t.name(nameOf(f)))
	}
	for _, s := range p.Stacks {
		n := &t.root
		n.total[side] += s.Value
		for _, f := range slices.Backward(s.Frames) {
			n = t.child(n, t.names[f])
			n.total[side] += s.Value
		}
		n.self[side] += s.Value
	}
}

func (t *tree) name(text string) name {
	id, ok := t.ids[text]
	if !ok {
		if t.ids == nil {
			t.ids, t.children = map[string]uint32{}, map[edge]*node{}
		}
		id = uint32(len(t.ids))
		t.ids[text] = id
	}
	return name{id, text}
}

func (t *tree) child(n *node, of name) *node {
	if n.last != nil && n.last.id == of.id {
		return n.last
	}
	e := edge{n, of.id}
	child := t.children[e]
	if child == nil {
		if len(t.spare) == 0 {
			t.spare = make([]node, 256)
		}
		child, t.spare = &t.spare[0], t.spare[1:]
		child.name, child.next = of, n.first
		n.first = child
		t.children[e] = child
	}
	n.last = child
	return child
}

// nameOf is what a flame graph calls a frame. One without a function still has a name, so that its bytes are shown.
func nameOf(f profiles.Frame) string {
	return cmp.Or(f.Function, f.SystemName, f.Mapping, "unknown")
}

func (n *node) width() int64 { return n.total[left] + n.total[right] }

// link makes the children of n those given, in the order they are drawn in: by name, so that a refresh moves nothing.
func (n *node) link(children []*node) {
	slices.SortFunc(children, func(a, b *node) int { return cmp.Compare(a.text, b.text) })
	n.first, n.last = nil, nil
	for _, child := range slices.Backward(children) {
		child.next, n.first = n.first, child
	}
}

// prune keeps the limit widest nodes below the root, and gives what is under each cut to one child named "other", so that no
// total changes. A parent is kept before its child: it is never narrower, and it is met first. It puts the nodes in order.
func (t *tree) prune(limit int) {
	all := []*node{&t.root}
	var children []*node
	for i := 0; i < len(all); i++ {
		children = children[:0]
		for child := all[i].first; child != nil; child = child.next {
			children = append(children, child)
		}
		all[i].link(children)
		all = append(all, children...)
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
		children = children[:0]
		for child := kept.first; child != nil; child = child.next {
			if !dropped[child] {
				children = append(children, child)
				continue
			}
			lost[left] += child.total[left]
			lost[right] += child.total[right]
		}
		if lost == [2]int64{} {
			kept.link(children)
			continue
		}
		i := slices.IndexFunc(children, func(n *node) bool { return n.text == "other" })
		if i < 0 {
			i, children = len(children), append(children, &node{name: name{text: "other"}})
		}
		for side := range lost {
			children[i].total[side] += lost[side]
			children[i].self[side] += lost[side]
		}
		kept.link(children)
	}
}
