// From what the API answers to trees, and from trees to tables.

import type { FlameGraph, Profile } from "./api";

export type Frame = "python" | "native" | "driver" | "special";

/** A frame and what it called. Of one profile, right is the value and left 0; of a diff, value is left + right: the width. */
export interface Node {
  name: string;
  value: number;
  left: number;
  right: number;
  selfLeft: number;
  selfRight: number;
  frame: Frame;
  /** file:line of the calls in it, with how many samples each. */
  lines: Map<string, number>;
  children: Node[];
}

/** A function over all stacks; what recursion has on one stack several times counts once. */
export interface Row {
  name: string;
  frame: Frame;
  left: number;
  right: number;
  selfLeft: number;
  selfRight: number;
}

function node(name: string, frame = frameOf(name, "", "")): Node {
  return { name, value: 0, left: 0, right: 0, selfLeft: 0, selfRight: 0, frame, lines: new Map(), children: [] };
}

/**
 * Decodes a flame graph: each level is a list of bars, (offset, total, self, name), an offset counted from the end of the bar
 * before. A diff's bars have the first three twice. A bar's parent is the one above that spans it.
 */
export function decode(graph: FlameGraph, isDiff: boolean): Node {
  const stride = isDiff ? 7 : 4;
  const names = graph.names ?? [];
  let root = node("total", "special");
  let above: { node: Node; end: number }[] = [];
  (graph.levels ?? []).forEach((level, depth) => {
    const values = (level.values ?? []).map(Number);
    const bars: { node: Node; start: number; end: number }[] = [];
    let left = 0;
    let right = 0;
    for (let i = 0; i + stride <= values.length; i += stride) {
      const bar = node(names[values[i + stride - 1]!] ?? "?");
      const at = isDiff ? i + 3 : i;
      if (isDiff) {
        left += values[i]!;
        [bar.left, bar.selfLeft] = [values[i + 1]!, values[i + 2]!];
      }
      right += values[at]!;
      [bar.right, bar.selfRight] = [values[at + 1]!, values[at + 2]!];
      bar.value = bar.left + bar.right;
      if (bar.value > 0) bars.push({ node: bar, start: left + right, end: left + right + bar.value });
      left += bar.left;
      right += bar.right;
    }
    bars.sort((a, b) => a.start - b.start);
    if (depth === 0) {
      if (bars[0]) root = bars[0].node;
      root.name = "total";
      root.frame = "special";
    } else {
      let parent = 0;
      for (const bar of bars) {
        while (parent < above.length - 1 && bar.start >= above[parent]!.end) parent++;
        above[parent]?.node.children.push(bar.node);
      }
    }
    above = bars;
  });
  return root;
}

/** The agent's name for the object of a frame that is of none: a frame of Python, or a remark. */
const noObject = "[no object]";
const driverObject = /(^|\/)lib(cuda|cudart|nvcuvid|nvidia-[a-z]+|hsa-runtime64|amdhip64|ze_[a-z_]+)\.so/;
const driverName = /^(cu[A-Z]|cuda[A-Z]|hip[A-Z]|ze[A-Z]|hsa_)\w*$/;

/** The kind of a frame by its name, source file and object. Names alone tell Python from C only by luck, so they do not try. */
export function frameOf(name: string, file: string, object: string): Frame {
  if (/^\[.*\]$/s.test(name) || name === "other" || name === "total") return "special";
  if (/\.pyx?$/.test(file) || /^<.*>$/.test(file) || (object === noObject && file !== "")) return "python";
  if (driverObject.test(object) || /^lib(cuda|nvidia)[\w.-]*\+0x/.test(name) || driverName.test(name)) return "driver";
  return "native";
}

/** Gives the frames of a tree what only pprof carries: files, lines, and the kind that follows from them. */
export function attach(root: Node, profile: Profile): void {
  const text = (index: string | undefined) => profile.stringTable?.[Number(index ?? 0)] ?? "";
  const objects = new Map((profile.mapping ?? []).map((mapping) => [mapping.id, text(mapping.filename)]));
  const functions = new Map((profile.function ?? []).map((f) => [f.id, { name: text(f.name), file: text(f.filename) }]));
  // Frames of a location from the outermost to the innermost inlined one.
  const frames = new Map(
    (profile.location ?? []).map((location) => [
      location.id,
      (location.line ?? []).toReversed().map((line) => {
        const { name = "", file = "" } = functions.get(line.functionId) ?? {};
        const position = file && Number(line.line) > 0 ? `${file}:${line.line}` : file;
        return { name, position, frame: frameOf(name, file, objects.get(location.mappingId ?? "") ?? "") };
      }),
    ]),
  );
  const index = new Map<Node, Map<string, Node>>();
  for (const sample of profile.sample ?? []) {
    let at: Node | undefined = root;
    for (const location of (sample.locationId ?? []).toReversed()) {
      for (const frame of frames.get(location) ?? []) {
        if (!at) break;
        let children = index.get(at);
        if (!children) index.set(at, (children = new Map(at.children.map((child) => [child.name, child]))));
        at = children.get(frame.name);
        if (!at) break;
        at.frame = frame.frame;
        if (frame.position) at.lines.set(frame.position, (at.lines.get(frame.position) ?? 0) + 1);
      }
    }
  }
}

/** The same stacks from the innermost frame outwards: who allocated, called by whom. */
export function reverse(root: Node): Node {
  const top = { ...node("total", "special"), value: root.value, left: root.left, right: root.right };
  const index = new Map<Node, Map<string, Node>>();
  const stack: Node[] = [];
  const walk = (from: Node): void => {
    stack.push(from);
    if (from.selfLeft + from.selfRight > 0 && from !== root) {
      let at = top;
      for (let i = stack.length - 1; i > 0; i--) {
        const source = stack[i]!;
        let children = index.get(at);
        if (!children) index.set(at, (children = new Map()));
        let child = children.get(source.name);
        if (!child) {
          children.set(source.name, (child = node(source.name, source.frame)));
          at.children.push(child);
        }
        child.left += from.selfLeft;
        child.right += from.selfRight;
        child.value += from.selfLeft + from.selfRight;
        if (i === stack.length - 1) {
          child.selfLeft += from.selfLeft;
          child.selfRight += from.selfRight;
        }
        for (const [line, count] of source.lines) child.lines.set(line, (child.lines.get(line) ?? 0) + count);
        at = child;
      }
    }
    from.children.forEach(walk);
    stack.pop();
  };
  walk(root);
  return top;
}

/** One row per function of a tree, unsorted. */
export function table(root: Node): Row[] {
  const rows = new Map<string, Row>();
  const open = new Set<string>();
  const walk = (from: Node): void => {
    let row = rows.get(from.name);
    if (!row) rows.set(from.name, (row = { name: from.name, frame: from.frame, left: 0, right: 0, selfLeft: 0, selfRight: 0 }));
    row.selfLeft += from.selfLeft;
    row.selfRight += from.selfRight;
    const outermost = !open.has(from.name);
    if (outermost) {
      row.left += from.left;
      row.right += from.right;
      open.add(from.name);
    }
    from.children.forEach(walk);
    if (outermost) open.delete(from.name);
  };
  root.children.forEach(walk);
  return [...rows.values()];
}

/** The value of the stacks that contain a match, each once. */
export function matched(root: Node, match: (name: string) => boolean): { left: number; right: number } {
  const sum = { left: 0, right: 0 };
  const walk = (from: Node): void => {
    if (match(from.name)) {
      sum.left += from.left;
      sum.right += from.right;
    } else {
      from.children.forEach(walk);
    }
  };
  root.children.forEach(walk);
  return sum;
}
