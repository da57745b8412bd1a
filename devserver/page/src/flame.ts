import flamegraph, { type FlameGraph, type FlameNode } from "d3-flame-graph";
import { select } from "d3-selection";
import { h } from "./dom";
import type { Node } from "./tree";
import { format, growth, percent, signed } from "./units";

const rowHeight = 20;

export interface FlameOptions {
  unit: string;
  isDiff: boolean;
  /** What is to stand out; null is everything. */
  match: ((name: string) => boolean) | null;
  /** The frame that the graph is zoomed to, null when it shows everything. */
  onZoom: (name: string | null) => void;
}

/** d3-flame-graph in a host element, with a keyboard, a tooltip, and the zoom kept across refreshes. */
export class Flame {
  private readonly chart: FlameGraph<Node>;
  private readonly tip = h("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
  private options: FlameOptions = { unit: "bytes", isDiff: false, match: null, onZoom: () => {} };
  private drawn = false;
  /** Names from the root to the frame zoomed to. */
  private path: string[] = [];
  private total: Node | null = null;

  constructor(private readonly host: HTMLElement) {
    const tooltip = Object.assign(() => {}, {
      show: (event: MouseEvent, at: FlameNode<Node>) => this.showTip(at.data, event.clientX, event.clientY),
      hide: () => this.hideTip(),
    });
    this.chart = flamegraph<Node>()
      .cellHeight(rowHeight)
      .inverted(true)
      .sort(false)
      .minFrameSize(1) // narrower than a pixel: zoom in to see it
      .resetHeightOnZoom(true)
      .transitionDuration(0)
      .tooltip(tooltip)
      .setLabelHandler((at) => this.describe(at.data))
      .setColorMapper((at) => this.color(at.data))
      .onClick((at) => this.zoomed(at));
    document.body.append(this.tip);
    host.addEventListener("keydown", (event) => this.key(event));
    host.addEventListener("focusin", (event) => this.focused(event));
    host.addEventListener("focusout", () => this.hideTip());
    addEventListener("scroll", () => this.hideTip(), { passive: true });
    new ResizeObserver(() => {
      if (!this.drawn || host.clientWidth === 0) return;
      this.chart.width(host.clientWidth).update();
      this.decorate();
    }).observe(host);
  }

  show(root: Node, options: FlameOptions): void {
    this.options = options;
    this.total = root;
    this.chart.width(this.host.clientWidth || 960);
    if (this.drawn) this.chart.update(root);
    else this.chart(select(this.host).datum(root));
    this.drawn = true;
    const zoomed = this.find(this.path);
    if (zoomed?.parent) {
      this.chart.zoomTo(zoomed);
    } else {
      this.path = [];
      options.onZoom(null);
      this.decorate();
    }
  }

  /** Colours again, with what the options have become. */
  recolor(options: FlameOptions): void {
    this.options = options;
    if (!this.drawn) return;
    this.chart.update();
    this.decorate();
  }

  resetZoom(): void {
    if (this.drawn) this.chart.resetZoom();
  }

  /** Forgets the zoom: the next tree is of another selection. */
  forget(): void {
    this.path = [];
  }

  private find(path: string[]): FlameNode<Node> | undefined {
    let at: FlameNode<Node> | undefined = select<HTMLElement, FlameNode<Node>>(this.host).datum();
    for (const name of path.slice(1)) at = at?.children?.find((child) => child.data.name === name);
    return at;
  }

  private zoomed(at: FlameNode<Node>): void {
    this.path = [];
    for (let node: FlameNode<Node> | null = at; node; node = node.parent) this.path.unshift(node.data.name);
    this.options.onZoom(at.parent ? at.data.name : null);
    this.decorate(at);
  }

  /** After each drawing: the height without the two empty rows that the component adds, and frames that keys can reach. */
  private decorate(current?: FlameNode<Node>): void {
    const svg = select(this.host).select<SVGSVGElement>("svg");
    const frames = svg.selectAll<SVGGElement, FlameNode<Node>>("g.frame");
    let deepest = 0;
    frames.each((at) => (deepest = Math.max(deepest, at.depth)));
    svg.attr("height", (deepest + 1) * rowHeight).attr("role", "group").attr("aria-label", "Flame graph. Arrow keys move, Enter zooms, Escape shows everything.");
    const focus = current ?? this.find([]);
    frames
      .attr("role", "button")
      .attr("tabindex", (at) => (at === focus ? 0 : -1))
      .classed("thin", (_, index, elements) => Number(elements[index]!.getAttribute("width")) < 4) // a border would hide it
      .attr("aria-label", (at) => this.describe(at.data));
  }

  private key(event: KeyboardEvent): void {
    const from = (event.target as Element).closest("g.frame");
    if (event.key === "Escape") {
      this.resetZoom();
      this.focus(this.find([]));
    } else if (from) {
      const at = select<Element, FlameNode<Node>>(from).datum();
      const siblings = at.parent?.children ?? [at];
      const widest = (nodes: FlameNode<Node>[] = []) => nodes.reduce<FlameNode<Node> | undefined>((best, child) => (best && best.value >= child.value ? best : child), undefined);
      const step = (by: number) => {
        for (let i = siblings.indexOf(at) + by; siblings[i]; i += by) if (this.focus(siblings[i])) return;
      };
      if (event.key === "ArrowDown") this.focus(widest(at.children));
      else if (event.key === "ArrowUp") this.focus(at.parent ?? undefined);
      else if (event.key === "ArrowLeft") step(-1);
      else if (event.key === "ArrowRight") step(1);
      else if (event.key === "Enter" || event.key === " ") {
        this.chart.zoomTo(at);
        this.focus(at);
      } else return;
    } else return;
    event.preventDefault();
  }

  private focus(at: FlameNode<Node> | undefined): boolean {
    const element = select(this.host)
      .selectAll<SVGGElement, FlameNode<Node>>("g.frame")
      .filter((other) => other === at)
      .node();
    if (!element) return false;
    select(this.host).selectAll("g.frame").attr("tabindex", -1);
    element.setAttribute("tabindex", "0");
    element.focus();
    return true;
  }

  private focused(event: FocusEvent): void {
    const element = (event.target as Element).closest("g.frame");
    if (!element?.matches(":focus-visible")) return;
    const box = element.getBoundingClientRect();
    this.showTip(select<Element, FlameNode<Node>>(element).datum().data, Math.max(box.left, 0) + 8, box.bottom - 6);
  }

  private color(at: Node): string {
    const { isDiff, match } = this.options;
    let color: string;
    if (isDiff) {
      const change = Math.round(((at.right - at.left) / Math.max(at.left, at.right)) * 100);
      color = change === 0 ? "var(--same)" : `color-mix(in oklab, var(${change > 0 ? "--grew" : "--shrank"}) ${25 + Math.abs(change) * 0.75}%, var(--same))`;
    } else {
      color = `var(--${at.frame}-${shade(at.name)})`;
    }
    if (!match) return color;
    return match(at.name) ? "var(--match)" : `color-mix(in oklab, ${color} 35%, var(--surface))`;
  }

  private describe(at: Node): string {
    const { unit, isDiff } = this.options;
    if (isDiff) return `${at.name}, ${format(at.left, unit)} to ${format(at.right, unit)}, ${signed(at.right - at.left, unit)}`;
    return `${at.name}, ${format(at.right, unit)}, ${percent(at.right / (this.total?.right || 1))}`;
  }

  private showTip(at: Node, x: number, y: number): void {
    const { unit, isDiff } = this.options;
    const total = this.total!;
    const lines = [...at.lines].sort((a, b) => b[1] - a[1]).map(([line]) => line);
    const rows: [string, ...string[]][] = isDiff
      ? [
          ["", "total", "self"],
          ["Baseline", format(at.left, unit), format(at.selfLeft, unit)],
          ["Comparison", format(at.right, unit), format(at.selfRight, unit)],
          ["Growth", signed(at.right - at.left, unit), signed(at.selfRight - at.selfLeft, unit)],
          ["", growth(at.left, at.right), growth(at.selfLeft, at.selfRight)],
        ]
      : [
          ["Total", format(at.right, unit), percent(at.right / (total.right || 1))],
          ["Self", format(at.selfRight, unit), percent(at.selfRight / (total.right || 1))],
        ];
    this.tip.replaceChildren(
      h("div", { class: "tip-name" }, at.name),
      ...lines.slice(0, 3).map((line) => h("div", { class: "tip-line" }, line)),
      ...(lines.length > 3 ? [h("div", { class: "tip-line" }, `and ${lines.length - 3} more lines`)] : []),
      h("table", {}, ...rows.map(([head, ...cells]) => h("tr", {}, h("th", { scope: "row" }, head), ...cells.map((cell) => h("td", {}, cell))))),
    );
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const left = Math.max(8, Math.min(x + 14, innerWidth - width - 8));
    const top = y + 18 + height > innerHeight ? Math.max(8, y - height - 10) : y + 18;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${top}px`;
  }

  private hideTip(): void {
    this.tip.hidden = true;
  }
}

/** One of three shades by name, so that neighbours of one kind differ and a function looks the same everywhere. */
function shade(name: string): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return Math.abs(hash) % 3;
}
