// The hit rate and the lookups over time: a line above bars, in one small SVG that is drawn anew when it changes.

import { el, svg } from "./dom.js";
import { clock, count, counted, percent, share } from "./words.js";

const SPANS = [
  { seconds: 3600, step: 60, text: "the last hour" },
  { seconds: 6 * 3600, step: 300, text: "the last 6 hours" },
  { seconds: 24 * 3600, step: 900, text: "the last 24 hours" },
];
const NARROW = 520; // pixels

/** The chart's measures in pixels, from the size of the page's letters. */
function measures(width) {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const it = { width, letter: 0.75 * rem, left: 3.1 * rem, right: 0.5 * rem, top: 0.6 * rem, rate: 9.5 * rem, bars: 3.2 * rem };
  it.base = it.top + it.rate + 1.6 * rem + it.bars;
  it.height = it.base + 1.6 * rem;
  it.y = (rate) => it.top + (1 - rate) * it.rate;
  return it;
}

/** The shortest span that has all of the history, cut into equal steps: `{span, buckets: [{at, hits, misses}]}`. */
export function buckets(history, now) {
  const age = history.length ? now - history[0].at : 0;
  const span = SPANS.find(({ seconds }) => age <= seconds) ?? SPANS.at(-1);
  const end = Math.floor(now / span.step) * span.step + span.step;
  const begin = end - span.seconds;
  const found = Array.from({ length: span.seconds / span.step }, (_, i) => ({
    at: begin + i * span.step,
    hits: 0,
    misses: 0,
  }));
  for (const line of history) {
    const bucket = found[Math.floor((line.at - begin) / span.step)];
    if (!bucket) continue;
    bucket.hits += line.hits ?? 0;
    bucket.misses += line.misses ?? 0;
  }
  return { span, buckets: found };
}

/** Draws into `place`, as wide as it is. */
export function draw(place, { span, buckets: found }) {
  const size = measures(Math.max(240, Math.floor(place.clientWidth)));
  const step = (size.width - size.left - size.right) / found.length;
  const x = (i) => size.left + (i + 0.5) * step;
  const most = Math.max(1, ...found.map((it) => it.hits + it.misses));

  const parts = [...grid(size, most), ...times(found, span, x, size)];
  const rates = found.map((it, i) => ({ i, rate: share(it.hits, it.hits + it.misses) })).filter((it) => it.rate !== null);
  if (rates.length) parts.push(...line(rates, x, size.y));
  found.forEach((it, i) => parts.push(...bars(it, x(i), Math.max(1, step * 0.72), most, size)));
  found.forEach((it, i) => parts.push(pointed(it, span, size.left + i * step, step, size)));

  const [hits, misses] = found.reduce((sum, it) => [sum[0] + it.hits, sum[1] + it.misses], [0, 0]);
  const text = `Hit rate over ${span.text}: ${percent(share(hits, hits + misses))} of ${counted(hits + misses, "lookup")}.`;
  const { width, height } = size;
  const attributes = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": text };
  place.replaceChildren(svg("svg", attributes, ...parts));
}

function grid({ width, left, right, letter, base, bars, y }, most) {
  const across = (at) => svg("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
  const label = (at, text) => svg("text", { class: "axis", x: left - 0.6 * letter, y: at + 0.35 * letter, "text-anchor": "end" }, text);
  const rates = [0, 0.5, 1].flatMap((rate) => [across(y(rate)), label(y(rate), percent(rate))]);
  return [...rates, across(base), label(base - bars, short(most)), label(base, "0")];
}

function times(found, span, x, { width, left, letter, base }) {
  const every = width < NARROW ? span.seconds / 3 : span.seconds / 6;
  const room = 1.6 * letter;
  return found.flatMap((it, i) => {
    // Marks at round local times.
    const local = it.at - new Date(it.at * 1000).getTimezoneOffset() * 60;
    if (local % every !== 0 || x(i) < left + room || x(i) > width - room) return [];
    return [
      svg("line", { class: "tick", x1: x(i), x2: x(i), y1: base, y2: base + 0.35 * letter }),
      svg("text", { class: "axis", x: x(i), y: base + 1.6 * letter, "text-anchor": "middle" }, clock(it.at)),
    ];
  });
}

function line(rates, x, y) {
  const points = rates.map(({ i, rate }) => `${x(i).toFixed(1)} ${y(rate).toFixed(1)}`);
  const [first, last] = [rates[0], rates.at(-1)];
  const dot = svg("circle", { class: "dot", cx: x(last.i), cy: y(last.rate), r: 3.5 });
  if (rates.length === 1) return [dot];
  return [
    svg("path", { class: "area", d: `M${x(first.i)} ${y(0)}L${points.join("L")}L${x(last.i)} ${y(0)}Z` }),
    svg("path", { class: "rate", d: `M${points.join("L")}` }),
    dot,
  ];
}

function bars({ hits, misses }, middle, width, most, size) {
  if (!hits && !misses) return [];
  const height = (value) => (value ? Math.max(1, (value / most) * size.bars) : 0);
  const bar = (kind, bottom, value) =>
    svg("rect", { class: kind, x: middle - width / 2, width, y: bottom - height(value), height: height(value) });
  return [bar("hits", size.base, hits), bar("misses", size.base - height(hits), misses)];
}

function pointed({ at, hits, misses }, span, x, width, { top, base }) {
  const rate = hits + misses ? `${percent(share(hits, hits + misses))} · ` : "";
  const text = `${clock(at)} to ${clock(at + span.step)}: ${rate}${counted(hits, "hit")}, ${counted(misses, "miss", "misses")}`;
  return svg("rect", { class: "pointed", x, width, y: top, height: base - top }, svg("title", {}, text));
}

function short(value) {
  return value >= 10000 ? `${Math.round(value / 1000)}k` : count(value);
}

/** Rows for those who want figures: a twelfth of the span each, the newest first. */
export function figures({ span, buckets: found }) {
  const size = found.length / 12;
  const rows = [];
  for (let i = 0; i < found.length; i += size) {
    const some = found.slice(i, i + size);
    const hits = some.reduce((sum, it) => sum + it.hits, 0);
    const misses = some.reduce((sum, it) => sum + it.misses, 0);
    const rate = percent(share(hits, hits + misses));
    rows.unshift(el("tr", {}, ...[clock(some[0].at), rate, count(hits), count(misses)].map((text) => el("td", {}, text))));
  }
  return rows;
}
