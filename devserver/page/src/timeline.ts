import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { h } from "./dom";
import { type Kind, clock, day, format, time } from "./units";

/** A line over time. Values are per step of the time line, or of a gauge one snapshot each. */
export interface Line {
  name: string;
  /** Milliseconds since 1970, ascending, to values. */
  points: Map<number, number>;
}

export interface TimelineData {
  kind: Kind;
  lines: Line[];
  start: number;
  end: number;
  /** Milliseconds between points. */
  step: number;
  /** The snapshot that the flame graph shows, or 0. */
  mark: number;
}

const height = 140;
const colors = 6;
const powers = Array.from({ length: 51 }, (_, power) => 2 ** power);

/** uPlot with a legend of its own below. Dragging selects a range; of a gauge, a click picks a snapshot. */
export class Timeline {
  private plot: uPlot | null = null;
  private data: TimelineData | null = null;
  private dragged = false;
  private readonly chart = h("div", { class: "chart" });
  private readonly legend = h("ul", { class: "lines" });
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");

  constructor(
    host: HTMLElement,
    private readonly onRange: (from: number, to: number) => void,
    private readonly onPick: (at: number) => void,
  ) {
    host.append(this.chart, this.legend);
    new ResizeObserver(() => this.plot?.setSize({ width: this.chart.clientWidth, height })).observe(this.chart);
    this.dark.addEventListener("change", () => this.data && this.show(this.data));
  }

  show(data: TimelineData): void {
    this.data = data;
    this.plot?.destroy();
    const { kind, lines } = data;
    const style = getComputedStyle(this.chart);
    const token = (name: string) => style.getPropertyValue(name).trim();
    const [times, ...values] = grid(data);
    const stepped = uPlot.paths.stepped!({ align: kind.gauge ? 1 : -1 });
    const axis = { stroke: token("--muted"), font: `12px ${style.fontFamily}`, ticks: { show: false }, grid: { stroke: token("--line"), width: 1 } };
    const long = data.end - data.start > 86_400_000;
    this.plot = new uPlot(
      {
        width: this.chart.clientWidth || 600,
        height,
        ms: 1,
        padding: [8, 26, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, y: false, points: { size: 6 } },
        scales: { x: { time: true, range: () => [data.start, data.end] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, space: long ? 110 : 70, size: 30, gap: 9, values: (_, splits, __, ___, increment) => splits.map((split) => (long ? `${day(split)} ${time(split, false)}` : time(split, increment < 60_000))) },
          { ...axis, size: 78, space: 24, values: (_, splits) => splits.map((split) => format(split, kind.unit)), ...(kind.unit.endsWith("bytes") ? { incrs: powers } : {}) },
        ],
        series: [
          {},
          ...lines.map((_, index) => ({
            stroke: token(`--line-${index % colors}`),
            fill: `${token(`--line-${index % colors}`)}${lines.length > 3 ? "00" : "24"}`,
            width: 1.5,
            paths: stepped,
            points: { show: false },
          })),
        ],
        hooks: {
          setCursor: [(plot) => this.label(plot.cursor.idx ?? null)],
          setSelect: [(plot) => this.selected(plot)],
          draw: [(plot) => drawMark(plot, data.mark, token("--accent"))],
        },
      },
      [times, ...values] as uPlot.AlignedData,
      this.chart,
    );
    this.chart.setAttribute("role", "img");
    this.chart.setAttribute("aria-label", `${kind.title} over time, ${lines.length} ${lines.length === 1 ? "line" : "lines"}; the figures are in the list below`);
    if (kind.gauge) {
      const { over } = this.plot;
      over.addEventListener("mousedown", () => (this.dragged = false));
      over.addEventListener("click", () => {
        const { left = -1 } = this.plot!.cursor;
        if (left >= 0 && !this.dragged) this.onPick(this.plot!.posToVal(left, "x"));
      });
    }
    this.label(null);
  }

  /** The legend: a value per line, at the cursor or of the whole window. */
  private label(index: number | null): void {
    const { kind, lines, mark } = this.data!;
    const at = index === null ? null : (this.plot!.data[0]![index] as number);
    const value = (line: Line) => {
      if (at !== null) return line.points.get(at) ?? 0;
      if (kind.gauge) return line.points.get(mark) ?? 0;
      return [...line.points.values()].reduce((sum, value) => sum + value, 0);
    };
    this.legend.replaceChildren(
      ...lines.map((line, index) =>
        h("li", {}, h("span", { class: `swatch line-${index % colors}` }), h("span", { class: "line-name" }, line.name), h("span", { class: "number" }, format(value(line), kind.unit))),
      ),
      h("li", { class: "when" }, at !== null ? clock(at) : kind.gauge ? (mark ? clock(mark) : "") : "whole window"),
    );
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    this.dragged = true;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onRange(Math.round(plot.posToVal(left, "x")), Math.round(plot.posToVal(left + width, "x")));
  }
}

/**
 * The lines on common times. The server leaves out what is zero: a time that others have is zero here, and beside a hole of
 * more than one step the lines drop to zero.
 */
function grid({ lines, step }: TimelineData): number[][] {
  const seen = [...new Set(lines.flatMap((line) => [...line.points.keys()]))].sort((a, b) => a - b);
  const far = (a = -Infinity, b = Infinity) => b - a > step * 1.5;
  const times = seen.flatMap((time, index) => [
    ...(far(seen[index - 1], time) ? [time - step] : []),
    time,
    ...(far(time, seen[index + 1]) ? [time + step] : []),
  ]);
  return [times, ...lines.map((line) => times.map((time) => line.points.get(time) ?? 0))];
}

function drawMark(plot: uPlot, mark: number, color: string): void {
  if (!mark) return;
  const x = Math.round(plot.valToPos(mark, "x", true));
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.beginPath();
  ctx.arc(x, bbox.top, 4 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fill();
  ctx.restore();
}
