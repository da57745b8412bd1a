// Which calls a view needs, and with which windows.

import * as api from "./api";
import { type Side, selectorOf, windowOf } from "./state";
import type { Line } from "./timeline";
import { type Kind, sortTypes } from "./units";

const second = 1000;
/** Steps of the time line. The agent pushes every 15 s, so a finer one would be a comb. */
const steps = [15, 30, 60, 120, 300, 600, 1800, 3600, 7200].map((step) => step * second);
const maxPoints = 240;
/** Lines that a chart and its legend can carry; the smaller ones become one. */
const maxLines = 8;

/** What there is in a window: services with their total of one type, and the types. */
export interface Catalog {
  types: Kind[];
  /** Services to the profile types that they have. */
  services: Map<string, Set<string>>;
}

/** The time line of one side, and the query of its flame graph. */
export interface SideData {
  window: { start: number; end: number };
  step: number;
  lines: Line[];
  labels: string[];
  /** Of a gauge: the moments that have a snapshot, ascending, and the one shown (0 where there is none). */
  snapshots: number[];
  mark: number;
  query: api.Query;
}

export async function loadCatalog(windows: { start: number; end: number }[], signal: AbortSignal): Promise<Catalog> {
  const start = Math.min(...windows.map((window) => window.start));
  const end = Math.max(...windows.map((window) => window.end));
  const [types, sets] = await Promise.all([
    api.profileTypes(start, end, signal),
    api.series(["service_name", "__profile_type__"], start, end, signal),
  ]);
  const services = new Map<string, Set<string>>();
  for (const set of sets) {
    const service = set.get("service_name");
    if (!service) continue;
    if (!services.has(service)) services.set(service, new Set());
    const type = set.get("__profile_type__");
    if (type) services.get(service)!.add(type);
  }
  return { types: sortTypes(types), services };
}

/**
 * The window (start, end] in whole steps, because the server's points are: one at t holds what came in (t-step, t]. The flame
 * graph takes the same window, so that it and the time line have the same total.
 */
function align(side: Side, kind: Kind, now: number): { start: number; end: number; step: number } {
  const { start, end } = windowOf(side.range, now);
  const step = kind.gauge ? second : (steps.find((step) => (end - start) / step <= maxPoints) ?? steps.at(-1)!);
  const last = Math.ceil(end / step) * step;
  const first = "last" in side.range ? last - Math.ceil((end - start) / step) * step : Math.floor(start / step) * step;
  return { start: first, end: last, step };
}

/** The total of each service: of a gauge its latest snapshot, looked for in the last hour of the window. */
export async function loadTotals(side: Side, kind: Kind, now: number, signal: AbortSignal): Promise<Map<string, number>> {
  const { start, end, step } = align(side, kind, now);
  const from = kind.gauge ? Math.max(start, end - 3600 * second) : start;
  const lines = await loadLines({ type: kind.id, selector: "{}", start: from, end }, "service_name", step, signal);
  return new Map(
    lines.map(({ name, points }) => {
      const values = [...points.values()];
      return [name, kind.gauge ? (values.at(-1) ?? 0) : values.reduce((sum, value) => sum + value, 0)];
    }),
  );
}

export async function loadSide(side: Side, kind: Kind, groupBy: string, now: number, signal: AbortSignal): Promise<SideData> {
  const { start, end, step } = align(side, kind, now);
  const query = { type: kind.id, selector: selectorOf(side), start: start + 1, end };
  const labels = await api.labelNames([selectorOf(side)], start, end, signal);
  const lines = await loadLines({ ...query, start }, labels.includes(groupBy) ? groupBy : "", step, signal);
  const data = { window: { start, end }, lines, labels: labels.filter((label) => label !== "service_name"), query };
  if (!kind.gauge) return { ...data, step, snapshots: [], mark: 0 };

  const snapshots = [...new Set(lines.flatMap((line) => [...line.points.keys()]))].sort((a, b) => a - b);
  const gaps = snapshots.slice(1).map((at, index) => at - snapshots[index]!).sort((a, b) => a - b);
  const mark = side.at ? nearest(snapshots, side.at) : (snapshots.at(-1) ?? 0);
  return {
    ...data,
    step: gaps[gaps.length >> 1] ?? 15 * second,
    snapshots,
    mark,
    query: mark ? { ...query, start: mark - step + 1, end: mark } : query,
  };
}

/** The moment closest to another; 0 of none. */
export function nearest(moments: number[], to: number): number {
  return moments.reduce((best, moment) => (best && Math.abs(best - to) <= Math.abs(moment - to) ? best : moment), 0);
}

async function loadLines(query: api.Query, groupBy: string, step: number, signal: AbortSignal): Promise<Line[]> {
  const answer = await api.selectSeries(query, groupBy ? [groupBy] : [], step / second, signal);
  const lines = answer.map(({ labels, points }) => ({
    name: groupBy ? labels?.find((label) => label.name === groupBy)?.value || `no ${groupBy}` : "total",
    // The point at the start is of the step before it, which Pyroscope answers too.
    points: new Map((points ?? []).filter((point) => point.value && Number(point.timestamp) > query.start).map((point) => [Number(point.timestamp), point.value!])),
  }));
  const sum = (line: Line) => [...line.points.values()].reduce((sum, value) => sum + value, 0);
  const byName = (a: Line, b: Line) => a.name.localeCompare(b.name, "en", { numeric: true });
  const some = lines.filter((line) => line.points.size > 0);
  if (some.length <= maxLines || groupBy === "service_name") return some.sort(byName);
  some.sort((a, b) => sum(b) - sum(a));
  const rest: Line = { name: `${some.length - maxLines + 1} smaller`, points: new Map() };
  for (const line of some.slice(maxLines - 1)) for (const [at, value] of line.points) rest.points.set(at, (rest.points.get(at) ?? 0) + value);
  return [...some.slice(0, maxLines - 1).sort(byName), rest];
}
