// The calls of Pyroscope's querier.v1.QuerierService that the page makes, as Connect JSON: int64 are strings there, and a
// field that is zero or empty is absent.

export interface LabelPair {
  name: string;
  value?: string;
}
export interface ProfileType {
  ID: string;
  name?: string;
  sampleType?: string;
  sampleUnit?: string;
}
export interface Point {
  value?: number;
  timestamp: string;
}
export interface Series {
  labels?: LabelPair[];
  points?: Point[];
}
export interface FlameGraph {
  names?: string[];
  levels?: { values?: string[] }[];
  total?: string;
}
/** google.v1.Profile, the fields that name a frame. String fields are indices into stringTable. */
export interface Profile {
  sample?: { locationId?: string[] }[];
  mapping?: { id: string; filename?: string }[];
  location?: { id: string; mappingId?: string; line?: { functionId: string; line?: string }[] }[];
  function?: { id: string; name?: string; filename?: string }[];
  stringTable?: string[];
}

/** What a flame graph is asked of: one profile type, one selector, one window of milliseconds. */
export interface Query {
  type: string;
  selector: string;
  start: number;
  end: number;
}

/** An error that the server, or the lack of one, answered a call with. */
export class APIError extends Error {
  constructor(
    readonly method: string,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Pyroscope's own limit for one flame graph: what is smaller becomes "other". */
const maxNodes = "8192";

async function call<T>(method: string, request: object, signal: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`querier.v1.QuerierService/${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Connect-Protocol-Version": "1" },
      body: JSON.stringify(request),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new APIError(method, "unavailable", "the server does not answer; is `vramprof serve` still running?");
  }
  const text = await response.text();
  let answer: any = null;
  try {
    answer = JSON.parse(text);
  } catch {
    // A proxy's own page, not Connect: told below.
  }
  if (!response.ok || answer === null) {
    throw new APIError(method, answer?.code ?? `http ${response.status}`, answer?.message ?? (text.slice(0, 200) || response.statusText));
  }
  return answer as T;
}

const merge = (query: Query) => ({
  profileTypeID: query.type,
  labelSelector: query.selector,
  start: String(query.start),
  end: String(query.end),
  maxNodes,
});

export async function profileTypes(start: number, end: number, signal: AbortSignal): Promise<ProfileType[]> {
  const answer = await call<{ profileTypes?: ProfileType[] }>("ProfileTypes", { start: String(start), end: String(end) }, signal);
  return answer.profileTypes ?? [];
}

export async function labelNames(matchers: string[], start: number, end: number, signal: AbortSignal): Promise<string[]> {
  const request = { matchers, start: String(start), end: String(end) };
  const answer = await call<{ names?: string[] }>("LabelNames", request, signal);
  return (answer.names ?? []).filter((name) => !name.startsWith("__"));
}

export async function labelValues(name: string, matchers: string[], start: number, end: number, signal: AbortSignal): Promise<string[]> {
  const request = { name, matchers, start: String(start), end: String(end) };
  return (await call<{ names?: string[] }>("LabelValues", request, signal)).names ?? [];
}

/** The label sets in a window, cut to the given names. */
export async function series(names: string[], start: number, end: number, signal: AbortSignal): Promise<Map<string, string>[]> {
  const request = { matchers: [], labelNames: names, start: String(start), end: String(end) };
  const answer = await call<{ labelsSet?: { labels?: LabelPair[] }[] }>("Series", request, signal);
  return (answer.labelsSet ?? []).map((set) => new Map((set.labels ?? []).map((pair) => [pair.name, pair.value ?? ""])));
}

/** Sums per step (seconds): the point at t holds what came in (t-step, t]. Steps without profiles may be absent. */
export async function selectSeries(query: Query, groupBy: string[], step: number, signal: AbortSignal): Promise<Series[]> {
  const request = { ...merge(query), maxNodes: undefined, groupBy, step };
  return (await call<{ series?: Series[] }>("SelectSeries", request, signal)).series ?? [];
}

export async function selectMergeStacktraces(query: Query, signal: AbortSignal): Promise<FlameGraph> {
  return (await call<{ flamegraph?: FlameGraph }>("SelectMergeStacktraces", merge(query), signal)).flamegraph ?? {};
}

export async function selectMergeProfile(query: Query, signal: AbortSignal): Promise<Profile> {
  return call<Profile>("SelectMergeProfile", merge(query), signal);
}

export async function diff(left: Query, right: Query, signal: AbortSignal): Promise<FlameGraph> {
  const request = { left: merge(left), right: merge(right) };
  return (await call<{ flamegraph?: FlameGraph }>("Diff", request, signal)).flamegraph ?? {};
}
