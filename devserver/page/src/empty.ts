import { h, replace } from "./dom";
import { type Range, ranges, windowOf } from "./state";
import { clock } from "./units";

/** What to do where there is nothing to see. */
export function renderEmpty(host: HTMLElement, range: Range, look: (range: Range) => void): void {
  const { start, end } = windowOf(range, Date.now());
  const longer = ranges.filter(({ last }) => last > end - start || "from" in range);
  const code = (text: string) => h("code", {}, text);
  replace(
    host,
    h("h2", {}, `No profiles from ${clock(start)} to ${clock(end)}`),
    h("p", {}, "A profile arrives within 15 seconds after a program has allocated GPU memory."),
    h(
      "ul",
      {},
      h("li", {}, "On this machine: start the program. The agent inside ", code("vramprof serve"), " sees it, with no change and no restart."),
      h("li", {}, "On another machine: run ", code(`vramprof-agent --pyroscope-url ${location.origin}`), " there."),
      h("li", {}, "One command and no server: ", code("vramprof run -- python train.py"), " prints who allocated most."),
    ),
    longer.length > 0 && h("p", {}, "Or look further back:"),
    h("div", { class: "buttons" }, ...longer.map(({ text, last }) => h("button", { type: "button", class: "small", click: () => look({ last }) }, text))),
  );
}
