import { h, replace } from "./dom";
import { type Node, type Row, matched, table as rowsOf } from "./tree";
import { exact, format, growth, percent, signed } from "./units";

const firstRows = 100;

interface Column {
  key: string;
  title: string;
  value: (row: Row) => number;
  text: (row: Row) => string;
  exact?: (row: Row) => string;
}

export interface TableOptions {
  unit: string;
  isDiff: boolean;
  match: ((name: string) => boolean) | null;
  /** A function's name was chosen. */
  pick: (name: string) => void;
}

/** Functions with what they allocated themselves and in all; of a diff by growth in bytes. */
export class Table {
  private sort = "";
  private all = false;
  private root: Node | null = null;
  private options!: TableOptions;

  constructor(private readonly host: HTMLElement) {}

  show(root: Node, options: TableOptions): void {
    if (this.options && this.options.isDiff !== options.isDiff) this.sort = "";
    this.root = root;
    this.options = options;
    this.render();
  }

  private columns(root: Node): Column[] {
    const { unit, isDiff } = this.options;
    const bytes = (key: string, title: string, value: (row: Row) => number): Column => ({ key, title, value, text: (row) => format(value(row), unit), exact: (row) => exact(value(row), unit) });
    if (!isDiff) {
      const share = (value: number) => percent(value / (root.right || 1));
      return [
        bytes("total", "Total", (row) => row.right),
        { key: "total-share", title: "Share", value: (row) => row.right, text: (row) => share(row.right) },
        bytes("self", "Self", (row) => row.selfRight),
        { key: "self-share", title: "Share", value: (row) => row.selfRight, text: (row) => share(row.selfRight) },
      ];
    }
    const grown = (row: Row) => row.right - row.left;
    return [
      bytes("left", "Baseline", (row) => row.left),
      bytes("right", "Comparison", (row) => row.right),
      { key: "growth", title: "Growth", value: grown, text: (row) => signed(grown(row), unit), exact: (row) => exact(grown(row), unit) },
      { key: "relative", title: "Relative", value: (row) => (row.left ? grown(row) / row.left : row.right ? Infinity : 0), text: (row) => growth(row.left, row.right) },
      { key: "self", title: "Self growth", value: (row) => row.selfRight - row.selfLeft, text: (row) => signed(row.selfRight - row.selfLeft, unit) },
    ];
  }

  private render(): void {
    const root = this.root!;
    const { match, pick, isDiff } = this.options;
    const columns = this.columns(root);
    const sorted = columns.find((column) => column.key === this.sort) ?? columns.find((column) => column.key === (isDiff ? "growth" : "total"))!;
    // What grew by the same bytes is one stack, as a rule: the frame that grew most of its own size is nearest to the reason.
    // Otherwise the order is that of the stacks.
    const relative = columns.find((column) => column.key === "relative") ?? sorted;
    const rows = rowsOf(root)
      .filter((row) => !match || match(row.name))
      .sort((a, b) => compare(sorted.value(b), sorted.value(a)) || compare(relative.value(b), relative.value(a)));
    const shown = this.all ? rows : rows.slice(0, firstRows);
    replace(
      this.host,
      h(
        "table",
        { class: "functions" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Function"),
            ...columns.map((column) =>
              h(
                "th",
                { scope: "col", "aria-sort": column === sorted ? "descending" : "none" },
                h("button", { type: "button", "data-key": `sort-${column.key}`, click: () => ((this.sort = column.key), this.render()) }, column.title),
              ),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          ...shown.map((row) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, h("div", { class: "function" }, h("span", { class: `swatch ${row.frame}` }), h("button", { type: "button", title: `Search ${row.name}`, click: () => pick(row.name) }, row.name))),
              ...columns.map((column) => h("td", { class: "number", title: column.exact?.(row) }, column.text(row))),
            ),
          ),
        ),
      ),
      rows.length === 0 && h("p", { class: "hint" }, "No function matches."),
      rows.length > shown.length && h("button", { type: "button", class: "small more", click: () => ((this.all = true), this.render()) }, `Show all ${rows.length} functions`),
    );
  }
}

/** For sorting, also by what is infinite. */
function compare(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Share and value of what matches, as text beside the search. */
export function matchText(root: Node, match: (name: string) => boolean, unit: string, isDiff: boolean): string {
  const sum = matched(root, match);
  if (isDiff) return `${format(sum.left, unit)} → ${format(sum.right, unit)} (${signed(sum.right - sum.left, unit)})`;
  return `${format(sum.right, unit)}, ${percent(sum.right / (root.right || 1))}`;
}
