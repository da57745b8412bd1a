import * as api from "./api";
import { h, replace, select } from "./dom";
import { type SideData, nearest } from "./load";
import { type Matcher, type Side, minute, ranges, selectorOf, windowOf } from "./state";
import { Timeline } from "./timeline";
import { type Kind, clock, duration, exact, format } from "./units";

export interface PanelView {
  side: Side;
  kind: Kind;
  groupBy: string;
  /** "Baseline" and "Comparison"; empty while exploring. */
  title: string;
  services: string[];
}

/** One selection: service, filters, range, its time line, its total. */
export class Panel {
  readonly element: HTMLElement;
  private readonly controls = h("div", { class: "controls" });
  private readonly custom = h("div", { class: "controls" });
  private readonly figure = h("div", { class: "figure" });
  private readonly timeline: Timeline;
  private view!: PanelView;
  private data: SideData | null = null;
  private adding = false;
  /** What the controls show: they stay as they are, with an open list, while that is the same. */
  private rendered = "";

  constructor(
    label: string,
    private readonly change: (side: Partial<Side>) => void,
    private readonly changeGroup: (label: string) => void,
    private readonly fail: (error: unknown) => void,
  ) {
    const chart = h("div", { class: "timeline" });
    this.element = h("section", { class: "card panel", "aria-label": label }, this.controls, this.custom, this.figure, chart);
    this.timeline = new Timeline(
      chart,
      (from, to) => change({ range: { from, to }, at: 0 }),
      (at) => change({ at: nearest(this.data?.snapshots ?? [], at) }),
    );
  }

  /** Shows what is selected; the data follows. */
  select(view: PanelView): void {
    this.view = view;
    this.renderControls();
  }

  /** Shows the time line and the total of what its flame graph shows. */
  show(data: SideData, total: number): void {
    this.data = data;
    const { kind } = this.view;
    this.renderControls();
    this.timeline.show({ kind, lines: data.lines, start: data.window.start, end: data.window.end, step: data.step, mark: data.mark });
    replace(
      this.figure,
      h("strong", { class: "number", title: exact(total, kind.unit) }, format(total, kind.unit)),
      h("span", { class: "verb" }, kind.verb),
      h("span", { class: "caption" }, kind.gauge ? this.snapshotText(data) : `${clock(data.window.start)} – ${clock(data.window.end)}, ${duration(data.window.end - data.window.start)}`),
      ...(kind.gauge ? this.snapshotButtons(data) : []),
    );
  }

  private snapshotText({ mark, snapshots, window }: SideData): string {
    if (!mark) return "no snapshot in this window";
    const latest = mark === snapshots.at(-1);
    const before = window.end - mark;
    return `snapshot of ${clock(mark)}, ${latest ? "the latest" : "chosen"} of ${snapshots.length}${latest && before > 2 * minute ? `, ${duration(before)} before the window ends` : ""}`;
  }

  private snapshotButtons(data: SideData): HTMLElement[] {
    const sums = data.snapshots.map((at) => data.lines.reduce((sum, line) => sum + (line.points.get(at) ?? 0), 0));
    const highest = data.snapshots[sums.indexOf(Math.max(...sums))] ?? 0;
    const button = (text: string, at: number, pressed: boolean) =>
      h("button", { type: "button", class: "small", "data-key": text, "aria-pressed": pressed ? "true" : "false", click: () => this.change({ at }) }, text);
    return data.snapshots.length > 1
      ? [h("span", { class: "buttons" }, button("Latest", 0, !this.view.side.at), button("Highest", highest, this.view.side.at === highest), h("span", { class: "hint" }, "or click in the chart"))]
      : [];
  }

  private renderControls(): void {
    const { side, title, services, groupBy } = this.view;
    const labels = this.data?.labels ?? [];
    const content = JSON.stringify([this.view, labels, this.adding]);
    if (content === this.rendered) return;
    this.rendered = content;
    const group = labels.includes(groupBy) ? groupBy : "";
    replace(
      this.controls,
      title && h("h2", { class: `side ${title.toLowerCase()}` }, title),
      title &&
        select(`Service of the ${title.toLowerCase()}`, [...new Set([...services, side.service])].map((name) => ({ value: name, text: name })), side.service, (service) => this.change({ service, at: 0 }), { "data-key": "service" }),
      ...side.filters.map((filter, index) =>
        h(
          "button",
          { type: "button", class: "chip", "data-key": `chip${index}`, "aria-label": `Remove the filter ${filter.name}${filter.op}${filter.value}`, click: () => this.change({ filters: side.filters.toSpliced(index, 1), at: 0 }) },
          `${filter.name} ${filter.op} ${filter.value || "(empty)"}`,
          h("span", { class: "cross", "aria-hidden": "true" }, "×"),
        ),
      ),
      this.adding
        ? this.filterForm(labels)
        : h("button", { type: "button", class: "chip add", "data-key": "add", click: () => this.toggleForm(true) }, "+ Filter"),
      h("span", { class: "space" }),
      h("label", { class: "field" }, "Lines by", select("Draw a line for each value of this label", [{ value: "", text: "nothing" }, ...labels.map((label) => ({ value: label, text: label }))], group, this.changeGroup, { "data-key": "group" })),
      this.rangeSelect(side),
    );
    replace(this.custom, ..."from" in side.range ? this.rangeForm(side.range) : []);
    this.custom.hidden = !("from" in side.range);
  }

  private rangeSelect(side: Side): HTMLElement {
    const last = "last" in side.range ? side.range.last : 0;
    const options = ranges.map((range) => ({ value: String(range.last), text: range.text }));
    if (last && !ranges.some((range) => range.last === last)) options.push({ value: String(last), text: `Last ${duration(last)}` });
    options.push({ value: "custom", text: "From … to …" });
    return select("Time range", options, last ? String(last) : "custom", (value) => {
      if (value !== "custom") return this.change({ range: { last: Number(value) }, at: 0 });
      const { start, end } = windowOf(side.range, Date.now());
      this.change({ range: { from: start, to: end }, at: 0 });
    }, { "data-key": "range" });
  }

  private rangeForm(range: { from: number; to: number }): HTMLElement[] {
    const input = (label: string, key: "from" | "to") => {
      const element = h("input", { type: "datetime-local", step: 1, "data-key": key, value: local(range[key]), change: () => {
        const at = new Date(element.value).getTime();
        const changed = { ...range, [key]: at };
        element.setCustomValidity(changed.from < changed.to ? "" : "The end must be after the start.");
        if (element.reportValidity()) this.change({ range: changed, at: 0 });
      } });
      return h("label", { class: "field" }, label, element);
    };
    return [h("span", { class: "space" }), input("From", "from"), input("to", "to")];
  }

  private toggleForm(on: boolean): void {
    this.adding = on;
    this.renderControls();
    this.controls.querySelector<HTMLElement>(on ? ".filter select" : ".chip.add")?.focus();
  }

  /** Label, operator, value: the values are asked for when a label is chosen. */
  private filterForm(labels: string[]): HTMLElement {
    const { side } = this.view;
    const operator = select("Operator", ["=", "!="].map((op) => ({ value: op, text: op })), "=", () => {});
    const values = select("Value", [{ value: "", text: "value" }], "", (value) => {
      if (!value) return;
      this.adding = false;
      const filter: Matcher = { name: name.value, op: operator.value as Matcher["op"], value: values.selectedOptions[0]!.text };
      this.change({ filters: [...side.filters, filter], at: 0 });
    }, { disabled: true });
    const name = select("Label", [{ value: "", text: "label" }, ...labels.map((label) => ({ value: label, text: label }))], "", async (label) => {
      const { start, end } = this.data?.window ?? windowOf(side.range, Date.now());
      try {
        const found = await api.labelValues(label, [selectorOf({ ...side, filters: side.filters.filter((filter) => filter.name !== label) })], start, end, new AbortController().signal);
        values.replaceChildren(h("option", { value: "" }, "value"), ...found.filter((value) => value).map((value) => h("option", {}, value)));
        values.disabled = false;
        values.focus();
      } catch (error) {
        this.fail(error);
      }
    });
    return h(
      "span",
      { class: "filter", keydown: (event: KeyboardEvent) => event.key === "Escape" && this.toggleForm(false) },
      name,
      operator,
      values,
      h("button", { type: "button", class: "small", "aria-label": "Cancel the filter", click: () => this.toggleForm(false) }, "×"),
    );
  }
}

/** The value of a datetime-local input. */
function local(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * minute).toISOString().slice(0, 19);
}
