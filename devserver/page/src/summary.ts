import { h, replace } from "./dom";
import type { SideData } from "./load";
import type { Node } from "./tree";
import { type Kind, clock, duration, exact, format, growth, signed } from "./units";

/** The totals of both sides before any shape: a flame graph of shares cannot show that everything grew alike. */
export function renderSummary(host: HTMLElement, compared: { kind: Kind; root: Node; sides: [SideData, SideData] } | null): void {
  const figure = (title: string, className = "", value = "–", note = "\u00a0", hint = "") =>
    h("div", { class: `total ${className}` }, h("h2", {}, title), h("strong", { class: "number", title: hint }, value), h("span", { class: "caption" }, note));
  if (!compared) {
    replace(host, figure("Baseline"), figure("Comparison"), figure("Growth"));
    return;
  }
  const { kind, root, sides } = compared;
  const when = ({ mark, window }: SideData) => {
    if (kind.gauge) return mark ? `snapshot ${clock(mark)}` : "no snapshot";
    return `${kind.verb} in ${duration(window.end - window.start)}`;
  };
  const grown = root.right - root.left;
  const lengths = sides.map(({ window }) => window.end - window.start);
  replace(
    host,
    figure("Baseline", "baseline", format(root.left, kind.unit), when(sides[0]), exact(root.left, kind.unit)),
    figure("Comparison", "comparison", format(root.right, kind.unit), when(sides[1]), exact(root.right, kind.unit)),
    figure("Growth", grown > 0 ? "grown" : grown < 0 ? "shrunk" : "", signed(grown, kind.unit), growth(root.left, root.right), exact(grown, kind.unit)),
    !kind.gauge && lengths[0] !== lengths[1]
      ? h("p", { class: "hint" }, `The windows differ in length, ${duration(lengths[0]!)} and ${duration(lengths[1]!)}: part of the growth is only time.`)
      : null,
  );
}
