// Numbers as people say them.

const whole = new Intl.NumberFormat("en");
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? whole.format(Math.round(value)) : "–");

/** `1 entry`, `2 entries`. */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value < 100 && unit > 0 ? tenth.format(value) : whole.format(Math.round(value))} ${units[unit]}`;
}

/** A share of 1 in percent: never 100 before all of it, never 0 as long as there is some. */
export function percent(share) {
  if (!isNumber(share)) return "–";
  const value = share * 100;
  if (value > 99 && value < 100) return `${(Math.floor(value * 10) / 10).toFixed(1)} %`;
  if (value > 0 && value < 1) return `${(Math.ceil(value * 10) / 10).toFixed(1)} %`;
  return `${Math.round(value)} %`;
}

export const share = (part, all) => (all > 0 ? part / all : null);

/** A long time as one number and a unit: `48 s`, `12 min`, `41 h`, `9.5 days`. */
export function amount(seconds) {
  if (!isNumber(seconds)) return "–";
  const scale = [
    [1, 60, "s"],
    [60, 60, "min"],
    [3600, 96, "h"],
    [86400, 730, "days"],
    [31557600, Infinity, "years"],
  ];
  const [size, , unit] = scale.find(([size, limit]) => seconds / size < limit);
  const value = seconds / size;
  return `${value < 10 && size > 60 ? tenth.format(value) : whole.format(Math.floor(value))} ${unit}`;
}

/** A running time: `8 s`, `2 min 05 s`, `1 h 07 min`. */
export function running(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (all < 60) return `${all} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min ${two(all % 60)} s`;
  if (all < 172800) return `${Math.floor(all / 3600)} h ${two(Math.floor((all % 3600) / 60))} min`;
  return `${Math.floor(all / 86400)} days ${Math.floor((all % 86400) / 3600)} h`;
}

/** How long ago, roughly. */
export function ago(seconds) {
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const exactFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
const preciseFormat = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });

/** `at` is seconds since 1970. */
export const clock = (at) => clockFormat.format(at * 1000);
export const clockSeconds = (at) => preciseFormat.format(at * 1000);
export const exact = (at) => exactFormat.format(at * 1000);
