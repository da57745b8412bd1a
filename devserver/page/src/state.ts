// What the page shows is one value, and its address is that value: a link shared is a view shared.

export interface Matcher {
  name: string;
  op: "=" | "!=";
  value: string;
}

/** The last `last` milliseconds, or from `from` to `to` (milliseconds since 1970). */
export type Range = { last: number } | { from: number; to: number };

/** One selection of profiles. Exploring has one, comparing two. */
export interface Side {
  service: string;
  filters: Matcher[];
  range: Range;
  /** Of a gauge: the moment of the snapshot in milliseconds since 1970; 0 is the latest in the window. */
  at: number;
}

export interface State {
  type: string;
  compare: boolean;
  /** Baseline (or the only one) and comparison. */
  sides: [Side, Side];
  groupBy: string;
  view: "flame" | "table";
  /** From the allocating function up to its callers. */
  reversed: boolean;
  search: string;
  refresh: boolean;
}

export const minute = 60_000;
export const ranges: { text: string; last: number }[] = [
  { text: "Last 5 minutes", last: 5 * minute },
  { text: "Last 15 minutes", last: 15 * minute },
  { text: "Last hour", last: 60 * minute },
  { text: "Last 6 hours", last: 360 * minute },
  { text: "Last 24 hours", last: 1440 * minute },
];

/** The window that a range is at this moment. */
export function windowOf(range: Range, now: number): { start: number; end: number } {
  return "last" in range ? { start: now - range.last, end: now } : { start: range.from, end: range.to };
}

/** A side's matchers as a label selector: {service_name="train", version!="v1"}. */
export function selectorOf(side: Side): string {
  const matchers: Matcher[] = side.service ? [{ name: "service_name", op: "=", value: side.service }, ...side.filters] : side.filters;
  return `{${matchers.map(({ name, op, value }) => `${name}${op}${JSON.stringify(value)}`).join(", ")}}`;
}

export function parseHash(hash: string): State {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const left = parseSide(fields, "");
  return {
    type: fields.get("type") ?? "",
    compare: fields.has("compare"),
    sides: [left, fields.has("compare") ? parseSide(fields, "to.") : structuredClone(left)],
    groupBy: fields.get("by") ?? "version",
    view: fields.get("view") === "table" ? "table" : "flame",
    reversed: fields.has("reversed"),
    search: fields.get("search") ?? "",
    refresh: fields.get("refresh") !== "off",
  };
}

export function formatHash(state: State): string {
  const fields = new URLSearchParams();
  if (state.type) fields.set("type", state.type);
  formatSide(fields, "", state.sides[0]);
  if (state.compare) {
    fields.set("compare", "");
    formatSide(fields, "to.", state.sides[1]);
  }
  if (state.groupBy !== "version") fields.set("by", state.groupBy);
  if (state.view !== "flame") fields.set("view", state.view);
  if (state.reversed) fields.set("reversed", "");
  if (state.search) fields.set("search", state.search);
  if (!state.refresh) fields.set("refresh", "off");
  return `#${fields}`;
}

function parseSide(fields: URLSearchParams, prefix: string): Side {
  const filters = fields.getAll(`${prefix}filter`).flatMap((text): Matcher[] => {
    const match = /^([a-zA-Z_]\w*)(!?=)(.*)$/s.exec(text);
    return match ? [{ name: match[1]!, op: match[2] as Matcher["op"], value: match[3]! }] : [];
  });
  return {
    service: fields.get(`${prefix}service`) ?? "",
    filters,
    range: parseRange(fields.get(`${prefix}range`) ?? ""),
    at: Number(fields.get(`${prefix}at`)) || 0,
  };
}

function formatSide(fields: URLSearchParams, prefix: string, side: Side): void {
  if (side.service) fields.set(`${prefix}service`, side.service);
  for (const { name, op, value } of side.filters) fields.append(`${prefix}filter`, `${name}${op}${value}`);
  fields.set(`${prefix}range`, "last" in side.range ? `${side.range.last / minute}m` : `${side.range.from}-${side.range.to}`);
  if (side.at) fields.set(`${prefix}at`, String(side.at));
}

function parseRange(text: string): Range {
  const [, last] = /^(\d+(?:\.\d+)?)m$/.exec(text) ?? [];
  if (last && Number(last) > 0) return { last: Number(last) * minute };
  const [, from, to] = /^(\d+)-(\d+)$/.exec(text) ?? [];
  if (from && to && Number(from) < Number(to)) return { from: Number(from), to: Number(to) };
  return { last: 15 * minute };
}
