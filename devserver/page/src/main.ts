import * as api from "./api";
import { byId, h, replace, select } from "./dom";
import { renderEmpty } from "./empty";
import { Flame } from "./flame";
import { type Catalog, type SideData, loadCatalog, loadSide, loadTotals } from "./load";
import { Panel } from "./panel";
import { type Side, type State, formatHash, parseHash, windowOf } from "./state";
import { renderSummary } from "./summary";
import { Table, matchText } from "./table";
import { type Node, attach, decode, reverse } from "./tree";
import { type Kind, format, kindOf } from "./units";
import "./theme.css";
import "./profile.css";
import "./layout.css";

/** How often a view of the last minutes is loaded again: the agent's interval. */
const refreshEvery = 15_000;

let state = parseHash(location.hash);
let loading = new AbortController();
let catalog: Catalog | null = null;
let totals = new Map<string, number>();
let sides: SideData[] = [];
let root: Node | null = null;
/** What the flame graph's zoom belongs to. */
let selection = "";

const flame = new Flame(byId("flame"));
const table = new Table(byId("table"));
const panels = (["Selection", "Comparison"] as const).map(
  (label, index) =>
    new Panel(
      label,
      (change) => update({ sides: state.sides.map((side, at) => (at === index ? { ...side, ...change } : side)) as [Side, Side] }),
      (groupBy) => update({ groupBy }),
      showError,
    ),
);
byId("panels").append(...panels.map((panel) => panel.element));

function kind(): Kind {
  return kindOf(state.type);
}

/** Changes the state, puts it in the address, and loads what it needs. */
function update(change: Partial<State>): void {
  state = { ...state, ...change };
  history.pushState(null, "", formatHash(state));
  void load();
}

/** Changes only how the loaded data is shown. */
function redraw(change: Partial<State>): void {
  state = { ...state, ...change };
  history.replaceState(null, "", formatHash(state));
  renderProfile();
}

async function load(): Promise<void> {
  loading.abort();
  loading = new AbortController();
  const { signal } = loading;
  const now = Date.now();
  busy(true);
  try {
    const shortfall = await loadAll(now, signal);
    byId("error").hidden = !shortfall;
    if (shortfall) showError(shortfall);
  } catch (error) {
    if (!signal.aborted) showError(error);
  }
  if (!signal.aborted) busy(false);
}

function busy(on: boolean): void {
  document.querySelector("main")!.setAttribute("aria-busy", String(on));
}

/** Loads and shows everything, and returns the error of what the page can do without. */
async function loadAll(now: number, signal: AbortSignal): Promise<unknown> {
  const used = state.compare ? state.sides : state.sides.slice(0, 1);
  const found = await loadCatalog(used.map((side) => windowOf(side.range, now)), signal);
  catalog = found;
  if (!state.type && found.types[0]) state.type = found.types[0].id;
  totals = state.type ? await loadTotals(state.sides[0], kind(), now, signal) : new Map();
  const largest = [...totals].sort((a, b) => b[1] - a[1])[0]?.[0] ?? [...found.services.keys()][0] ?? "";
  for (const side of state.sides) side.service ||= state.sides[0].service || largest;
  history.replaceState(null, "", formatHash(state));
  renderFrame();
  if (found.services.size === 0) return null;

  sides = await Promise.all(used.map((side) => loadSide(side, kind(), state.groupBy, now, signal)));
  const queries = sides.map((side) => side.query);
  const [left, right] = queries;
  // Files, lines and kinds come with the pprof form; without it the flame graph is still right.
  const [graph, ...profiles] = await Promise.all([
    state.compare ? api.diff(left!, right!, signal) : api.selectMergeStacktraces(left!, signal),
    ...queries.map((query) => api.selectMergeProfile(query, signal).catch((error: unknown) => ({ error }))),
  ]);
  root = decode(graph, state.compare);
  let shortfall: unknown = null;
  for (const profile of profiles) {
    if ("error" in profile) shortfall = profile.error;
    else attach(root, profile);
  }
  const selected = JSON.stringify([state.type, state.compare, used]);
  if (selected !== selection) flame.forget();
  selection = selected;
  panels[0]!.show(sides[0]!, state.compare ? root.left : root.right);
  if (state.compare) panels[1]!.show(sides[1]!, root.right);
  if (state.compare) renderSummary(byId("summary"), { kind: kind(), root, sides: sides as [SideData, SideData] });
  renderProfile();
  return shortfall;
}

/** Everything that is known before the profile is; what is not has its place already, so that nothing moves when it comes. */
function renderFrame(): void {
  const none = catalog?.services.size === 0;
  const listed = catalog?.types ?? [];
  const types = listed.some((type) => type.id === state.type) || !state.type ? listed : [...listed, kind()];
  const options = types.map((type) => ({ value: type.id, text: type.title }));
  const content = JSON.stringify([options, state.type]);
  if (byId("types").dataset.content !== content) {
    byId("types").dataset.content = content; // a list that is open stays open while nothing changes
    replace(byId("types"), types.length > 0 && select("Profile type", options, state.type, (type) => update({ type }), { "data-key": "type" }));
  }
  byId("about").textContent = state.type ? kind().about : "";
  renderSegments("modes", [["Explore", !state.compare, () => update({ compare: false })], ["Compare", state.compare, () => void compare()]]);
  const refresh = byId("refresh");
  refresh.setAttribute("aria-pressed", String(state.refresh));
  refresh.title = "Load ranges that end now again every 15 seconds";

  const services = [...(catalog?.services ?? [])].sort(([a], [b]) => (totals.get(b) ?? 0) - (totals.get(a) ?? 0) || a.localeCompare(b));
  replace(
    byId("services"),
    ...services.map(([name]) => {
      const current = name === state.sides[0].service;
      const choose = () => update({ sides: state.sides.map((side) => ({ ...side, service: name, at: 0 })) as [Side, Side] });
      const total = totals.get(name);
      return h("li", {}, h("button", { type: "button", "data-key": name, "aria-current": current ? "true" : null, click: choose }, h("span", { class: "name", title: name }, name), h("span", { class: "number" }, total === undefined ? "–" : format(total, kind().unit))));
    }),
    none && h("li", { class: "hint" }, "none yet"),
  );
  byId("profile").hidden = none;
  byId("panels").hidden = none;
  byId("panels").classList.toggle("two", state.compare);
  byId("empty").hidden = !none;
  panels[1]!.element.hidden = !state.compare;
  byId("summary").hidden = none || !state.compare;
  if (state.compare && byId("summary").childElementCount === 0) renderSummary(byId("summary"), null);
  panels.forEach((panel, index) =>
    panel.select({ side: state.sides[index]!, kind: kind(), groupBy: state.groupBy, title: state.compare ? ["Baseline", "Comparison"][index]! : "", services: services.map(([name]) => name) }),
  );
  document.title = `${state.sides[0].service ? `${state.sides[0].service} · ` : ""}vramprof`;
  renderToolbar();
  if (none) renderEmpty(byId("empty"), state.sides[0].range, (range) => update({ sides: state.sides.map((side) => ({ ...side, range, at: 0 })) as [Side, Side] }));
}

function renderToolbar(): void {
  renderSegments("views", [["Flame graph", state.view === "flame", () => redraw({ view: "flame" })], ["Table", state.view === "table", () => redraw({ view: "table" })]]);
  renderSegments("directions", [["Callers first", !state.reversed, () => redraw({ reversed: false })], ["Allocators first", state.reversed, () => redraw({ reversed: true })]]);
  byId("directions").hidden = state.view === "table";
  const byGrowth = state.compare && state.view === "flame";
  const kinds: [string, string][] = byGrowth
    ? [["shrank", "shrank"], ["same", "same"], ["grew", "grew"]]
    : [["python", "Python"], ["native", "native"], ["driver", "GPU driver"], ["special", "other"]];
  replace(byId("legend"), ...kinds.map(([name, text]) => h("li", {}, h("span", { class: `swatch ${name}` }), text)));
}

function renderProfile(): void {
  renderToolbar();
  if (!root) return;
  const { unit } = kind();
  const isDiff = state.compare;
  const search = byId<HTMLInputElement>("search");
  if (search !== document.activeElement) search.value = state.search;
  const term = state.search.toLowerCase();
  const match = term ? (name: string) => name.toLowerCase().includes(term) : null;
  byId("matched").textContent = match ? matchText(root, match, unit, isDiff) : "";

  byId("flame").hidden = state.view !== "flame";
  byId("table").hidden = state.view !== "table";
  byId("reset").hidden = true;
  byId("nothing").hidden = root.value > 0;
  if (root.value === 0) {
    byId("flame").hidden = byId("table").hidden = true;
    byId("nothing").textContent = `Nothing ${kind().verb} here: take a longer time range, fewer filters, or another profile type.`;
    return;
  }
  if (state.view === "table") {
    table.show(root, { unit, isDiff, match, pick: (name) => redraw({ search: state.search === name ? "" : name }) });
    return;
  }
  flame.show(state.reversed ? reverse(root) : root, {
    unit,
    isDiff,
    match,
    onZoom: (name) => {
      byId("reset").hidden = name === null;
      byId("reset").textContent = `Show everything, not only ${name}`;
    },
  });
}

function renderSegments(id: string, choices: [text: string, on: boolean, choose: () => void][]): void {
  replace(byId(id), ...choices.map(([text, on, choose]) => h("button", { type: "button", "data-key": text, "aria-pressed": String(on), click: choose }, text)));
}

/** Begins a comparison with what people compare most: the first version against the last. */
async function compare(): Promise<void> {
  const [side] = state.sides;
  const { start, end } = windowOf(side.range, Date.now());
  busy(true);
  const change = { compare: true, sides: [side, structuredClone(side)] as [Side, Side] };
  try {
    const versions = side.filters.some((filter) => filter.name === "version")
      ? []
      : (await api.labelValues("version", [`{service_name=${JSON.stringify(side.service)}}`], start, end, new AbortController().signal)).filter((version) => version);
    versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (versions.length > 1) {
      change.sides = [versions[0]!, versions.at(-1)!].map((value) => ({ ...structuredClone(side), filters: [...side.filters, { name: "version", op: "=" as const, value }] })) as [Side, Side];
    }
    update(change);
  } catch (error) {
    showError(error);
    busy(false);
  }
}

function showError(error: unknown): void {
  const box = byId("error");
  const text = error instanceof api.APIError ? [h("code", {}, error.code), ` ${error.message} (${error.method})`] : [String(error)];
  box.replaceChildren(h("span", {}, ...text), h("button", { type: "button", class: "small", click: () => void load() }, "Try again"));
  box.hidden = false;
}

byId("search").addEventListener("input", (event) => redraw({ search: (event.target as HTMLInputElement).value }));
byId("reset").addEventListener("click", () => flame.resetZoom());
byId("refresh").addEventListener("click", () => {
  redraw({ refresh: !state.refresh });
  renderFrame();
  if (state.refresh) void load();
});
addEventListener("popstate", () => {
  state = parseHash(location.hash);
  void load();
});
setInterval(() => {
  const moving = state.sides.slice(0, state.compare ? 2 : 1).some((side) => "last" in side.range);
  if (state.refresh && moving && !document.hidden) void load();
}, refreshEvery);
renderFrame();
document.body.classList.add("ready");
void load();
