package query

import (
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
)

// rootName is what Pyroscope calls the bar that spans all others.
const rootName = "total"

// flameGraph encodes the right side of a tree: of each bar its offset from the end of the bar before on its level, its total,
// its self value, and the index of its name.
func flameGraph(root *node) *querierv1.FlameGraph {
	names, levels := encode(root, false)
	return &querierv1.FlameGraph{Names: names, Levels: levels, Total: root.total[right], MaxSelf: maxSelf(root)}
}

// flameGraphDiff encodes both sides of a tree: a bar has offset, total and self of the left, then of the right, then its name.
func flameGraphDiff(root *node) *querierv1.FlameGraphDiff {
	names, levels := encode(root, true)
	return &querierv1.FlameGraphDiff{
		Names: names, Levels: levels, Total: root.width(), MaxSelf: maxSelf(root),
		LeftTicks: root.total[left], RightTicks: root.total[right],
	}
}

func maxSelf(n *node) int64 {
	most := max(n.self[left], n.self[right])
	for child := n.first; child != nil; child = child.next {
		most = max(most, maxSelf(child))
	}
	return most
}

// bar is a node and where it begins on each side. Pyroscope draws what a function holds itself to the left of what it called.
type bar struct {
	*node
	start [2]int64
}

func encode(root *node, isDiff bool) (names []string, levels []*querierv1.Level) {
	root.text = rootName
	index := map[string]int64{}
	for row := []bar{{node: root}}; len(row) > 0; {
		level := &querierv1.Level{}
		var below []bar
		var end [2]int64
		for _, b := range row {
			if _, known := index[b.text]; !known {
				index[b.text] = int64(len(names))
				names = append(names, b.text)
			}
			for side := range end {
				if side == right || isDiff {
					level.Values = append(level.Values, b.start[side]-end[side], b.total[side], b.self[side])
				}
				end[side] = b.start[side] + b.total[side]
			}
			level.Values = append(level.Values, index[b.text])
			at := [2]int64{b.start[left] + b.self[left], b.start[right] + b.self[right]}
			for child := b.first; child != nil; child = child.next {
				below = append(below, bar{child, at})
				at[left] += child.total[left]
				at[right] += child.total[right]
			}
		}
		levels = append(levels, level)
		row = below
	}
	return names, levels
}
