import type { ProfileType } from "./api";

const iec = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function isBytes(unit: string): boolean {
  return unit === "bytes" || unit === "decbytes";
}

/** A value with three significant digits in the unit of its profile type: bytes by 1024, everything else by 1000. */
export function format(value: number, unit: string): string {
  const magnitude = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (isBytes(unit)) {
    let power = 0;
    let scaled = magnitude;
    while (scaled >= 1023.5 && power < iec.length - 1) {
      scaled /= 1024;
      power++;
    }
    return `${sign}${power === 0 ? Math.round(scaled) : digits(scaled)}\u00a0${iec[power]}`;
  }
  const suffix = unit && unit !== "count" && unit !== "short" ? `\u00a0${unit}` : "";
  if (magnitude < 10_000) return `${sign}${Number.isInteger(magnitude) ? magnitude : digits(magnitude)}${suffix}`;
  const power = Math.min(Math.floor(Math.log10(magnitude) / 3), 4);
  return `${sign}${digits(magnitude / 1000 ** power)}\u00a0${["", "k", "M", "G", "T"][power]}${suffix}`;
}

function digits(value: number): string {
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

/** All digits, in groups: what the driver was asked for, to the byte. */
export function exact(value: number, unit: string): string {
  return `${Math.round(value).toLocaleString("en").replaceAll(",", "\u202f")}\u00a0${isBytes(unit) ? "bytes" : unit || "count"}`;
}

/** A growth with its sign: +512 MiB, −3. */
export function signed(value: number, unit: string): string {
  return value > 0 ? `+${format(value, unit)}` : format(value, unit);
}

export function percent(share: number): string {
  const value = share * 100;
  return `${value >= 99.95 || value === 0 ? value.toFixed(0) : value < 0.1 ? "<0.1" : value.toFixed(1)}\u00a0%`;
}

/** Growth relative to the left side: +50.0 %, new, gone. */
export function growth(left: number, right: number): string {
  if (left === right) return "0\u00a0%";
  if (left === 0) return "new";
  if (right === 0) return "gone";
  const value = ((right - left) / left) * 100;
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) < 1000 ? 1 : 0)}\u00a0%`;
}

/** A profile type as people read it. */
export interface Kind {
  id: string;
  unit: string;
  /** In a list of choices. */
  title: string;
  /** Behind a figure: "1.5 GiB allocated". */
  verb: string;
  /** One sentence for who has not met it. */
  about: string;
  /** A snapshot of what is held, which a sum over time would multiply. */
  gauge: boolean;
}

const known: Record<string, Omit<Kind, "id" | "unit">> = {
  gpu_alloc_bytes: { title: "Allocated bytes", verb: "allocated", about: "Bytes allocated in the window, freed since or not.", gauge: false },
  gpu_alloc_objects: { title: "Allocations", verb: "allocated", about: "Allocations made in the window, freed since or not.", gauge: false },
  gpu_inuse_bytes: { title: "Bytes in use", verb: "in use", about: "Bytes held at one moment: a snapshot, never a sum.", gauge: true },
  gpu_inuse_objects: { title: "Allocations in use", verb: "in use", about: "Allocations held at one moment: a snapshot, never a sum.", gauge: true },
  gpu_peak_bytes: { title: "Bytes at the peak", verb: "at the peak", about: "Bytes held when the process was at its peak in one interval.", gauge: true },
  gpu_peak_objects: { title: "Allocations at the peak", verb: "at the peak", about: "Allocations held at the process's peak in one interval.", gauge: true },
  gpu_failed_bytes: { title: "Refused bytes", verb: "refused", about: "Bytes asked for and refused: out of memory.", gauge: false },
  gpu_failed_objects: { title: "Refused allocations", verb: "refused", about: "Allocations asked for and refused: out of memory.", gauge: false },
};
const order = Object.keys(known);

/** Reads a profile type's ID; types of other profilers keep their own names. */
export function kindOf(id: string): Kind {
  const [name = "", sampleType = "", unit = ""] = id.split(":");
  const own = known[sampleType];
  if (own) return { id, unit, ...own };
  const gauge = /inuse|in_use|goroutine/.test(sampleType) || name === "goroutine";
  return { id, unit, title: `${sampleType} (${name})`, verb: sampleType, about: gauge ? "A snapshot, never a sum." : "A sum over the window.", gauge };
}

/** Ours first, in the order of the table above; then the others by name. */
export function sortTypes(types: ProfileType[]): Kind[] {
  const rank = (kind: Kind) => {
    const index = order.indexOf(kind.id.split(":")[1] ?? "");
    return index < 0 ? order.length : index;
  };
  return types.map((type) => kindOf(type.ID)).sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title));
}

const two = (value: number) => String(value).padStart(2, "0");

/** Local time of day: 12:30:15. */
export function time(ms: number, seconds = true): string {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
}

/** Local month and day: 08-31. */
export function day(ms: number): string {
  const at = new Date(ms);
  return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** Local time, with the date where it is not today's. */
export function clock(ms: number): string {
  const at = new Date(ms);
  return at.toDateString() === new Date().toDateString() ? time(ms) : `${at.getFullYear()}-${day(ms)} ${time(ms)}`;
}

/** A length of time: 15 s, 5 min, 2 h, 3 d. */
export function duration(ms: number): string {
  for (const [unit, length] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]] as const) {
    if (ms >= length) return `${+(ms / length).toFixed(1)}\u00a0${unit}`;
  }
  return `${+(ms / 1000).toFixed(1)}\u00a0s`;
}
