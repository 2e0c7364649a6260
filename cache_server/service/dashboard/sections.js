// The parts of the page, each made from the statistics.

import { buckets, draw, figures } from "./chart.js";
import { $, el, keep, say } from "./dom.js";
import { ago, amount, bytes, count, counted, exact, isNumber, percent, running, share } from "./words.js";

const HOUR = 3600;

/** Everything that the statistics say. `now` is the service's time in seconds since 1970, as far as it is known. */
export function show(stats, now) {
  const namespaces = Object.entries(stats.namespaces);
  $("rest").hidden = isEmpty(stats, namespaces);
  $("welcome").hidden = !$("rest").hidden;
  showRate(stats, now, namespaces);
  showSaved(namespaces);
  showFlightTile(stats);
  showSize(stats, namespaces);
  showChart(stats, now);
  showFlights(stats);
  showFailures(stats);
  showEvictions(stats, namespaces);
  showNamespaces(namespaces);
  showHealth(stats);
  showTimes(stats, now);
}

/** What changes by itself, second by second. */
export function showTimes(stats, now) {
  const passed = (performance.now() - stats.heardAt) / 1000;
  for (const cell of document.querySelectorAll("[data-age]")) say(cell, running(Number(cell.dataset.age) + passed));
  for (const cell of document.querySelectorAll("[data-silent]")) {
    const silent = Number(cell.dataset.silent) + passed;
    const lease = Number(cell.dataset.lease);
    say(cell, silent > lease / 2 ? `no sign of life for ${running(silent)}` : "");
  }
  for (const time of document.querySelectorAll("time[data-at]")) say(time, ago(Math.max(0, now - Number(time.dataset.at))));
  const uptime = $("uptime");
  if (uptime) say(uptime, running(stats.uptime_seconds + passed));
}

function isEmpty(stats, namespaces) {
  const some = ([, it]) => it.hits || it.misses || it.stores || it.entries || it.failures;
  return !namespaces.some(some) && !stats.totals.entries && !stats.in_flight.length;
}

const sum = (namespaces, name) => namespaces.reduce((all, [, it]) => all + (it[name] ?? 0), 0);
const known = (namespaces, name) => namespaces.some(([, it]) => isNumber(it[name]));

function tile(id, big, sub) {
  say($(id).querySelector(".big"), big);
  say($(id).querySelector(".sub"), sub);
}

function showRate(stats, now, namespaces) {
  const within = (seconds) =>
    stats.history
      .filter((line) => line.at > now - seconds)
      .reduce((all, line) => ({ hits: all.hits + (line.hits ?? 0), misses: all.misses + (line.misses ?? 0) }), {
        hits: 0,
        misses: 0,
      });
  const total = { hits: sum(namespaces, "hits"), misses: sum(namespaces, "misses") };
  const [hour, day] = [within(HOUR), within(24 * HOUR)];
  const rate = ({ hits, misses }) => percent(share(hits, hits + misses));
  const of = ({ hits, misses }, when) => `${count(hits)} of ${counted(hits + misses, "lookup")} ${when}`;
  if (hour.hits + hour.misses) tile("tile-rate", rate(hour), `${of(hour, "in the last hour")}\n${rate(day)} over 24 h`);
  else if (day.hits + day.misses) tile("tile-rate", rate(day), of(day, "in the last 24 h"));
  else if (total.hits + total.misses) tile("tile-rate", rate(total), of(total, "so far"));
  else tile("tile-rate", "–", "nobody has asked yet");
}

function showSaved(namespaces) {
  const avoided = sum(namespaces, "compiles_avoided");
  tile("tile-saved", amount(sum(namespaces, "seconds_saved")), `of compiling saved\n${counted(avoided, "compile")} avoided`);
}

function showFlightTile(stats) {
  const { in_flight_total: graphs, waiters: waiting } = stats;
  const what = graphs === 1 ? "graph" : "graphs";
  tile("tile-flight", count(graphs), `${what} in flight\n${waiting ? `${counted(waiting, "process", "processes")} waiting` : "nobody is waiting"}`);
}

function showSize(stats, namespaces) {
  const { capacity_bytes: capacity, reserved_bytes: reserved = 0 } = stats.totals;
  const used = stats.totals.bytes ?? (known(namespaces, "bytes") ? sum(namespaces, "bytes") : null);
  const entries = stats.totals.entries ?? (known(namespaces, "entries") ? sum(namespaces, "entries") : null);
  const meter = $("tile-size").querySelector(".meter");
  meter.hidden = !(isNumber(used) && capacity > 0);
  if (!meter.hidden) fill(meter, used, reserved, capacity);
  const limit = meter.hidden ? "no limit but the store's" : `${percent(used / capacity)} of ${bytes(capacity)}`;
  const more = [];
  if (isNumber(entries)) more.push(counted(entries, "entry", "entries"));
  if (reserved > 0) more.push(`${bytes(reserved)} arriving`);
  if (isNumber(used)) return tile("tile-size", bytes(used), `${limit}\n${more.join(" · ")}`);
  const stored = sum(namespaces, "bytes_stored");
  return tile("tile-size", bytes(stored), `in ${counted(sum(namespaces, "stores"), "entry", "entries")}\nsince this replica started`);
}

function fill(meter, used, reserved, capacity) {
  const part = (value) => `${Math.min(100, (100 * value) / capacity).toFixed(2)}%`;
  meter.querySelector(".used").style.width = part(used);
  meter.querySelector(".reserved").style.width = part(Math.min(reserved, Math.max(0, capacity - used)));
  meter.classList.toggle("full", used > 0.95 * capacity);
}

let drawn = "";

function showChart(stats, now) {
  const found = buckets(stats.history, now);
  const nothing = !found.buckets.some((it) => it.hits + it.misses);
  say($("chart-title"), `Hit rate, ${found.span.text}`);
  $("chart").hidden = $("chart-figures").hidden = nothing;
  $("chart-nothing").hidden = !nothing;
  const hidden = Object.keys(stats.totals).length === 0 && stats.history.length === 0 && sum(Object.entries(stats.namespaces), "hits");
  say($("chart-nothing"), hidden ? "The history is shown to those who may read every namespace." : "The line begins with the first lookup.");
  if (nothing) return;
  const state = JSON.stringify([$("chart").clientWidth, found]);
  if (state === drawn) return;
  drawn = state;
  draw($("chart"), found);
  $("chart-figures").querySelector("tbody").replaceChildren(...figures(found));
}

const place = (it) => `${it.namespace}/${it.key}`;

function graph(it) {
  return [el("span", { class: "label" }), el("span", { class: "place" })];
}

function sayGraph(row, it) {
  say(row.querySelector(".label"), it.label || it.key.slice(0, 12));
  say(row.querySelector(".place"), it.label ? `${it.namespace} · ${it.key.slice(0, 12)}` : it.namespace);
  row.querySelector(".place").title = it.key;
}

function showFlights(stats) {
  const oldest = stats.in_flight;
  $("flight").hidden = !oldest.length;
  $("flight-nothing").hidden = oldest.length > 0;
  say($("flight-count"), oldest.length < stats.in_flight_total ? `the oldest ${count(oldest.length)} of ${count(stats.in_flight_total)}` : "");
  keep($("flight").tBodies[0], oldest, (it) => `${place(it)} ${it.acquired_at}`, flightRow, (row, it) => {
    sayGraph(row, it);
    const [, owner, phase, age, waiters] = row.cells;
    say(owner, it.owner ?? "unknown");
    say(phase.firstElementChild, it.phase ?? "unknown");
    const silent = phase.lastElementChild;
    silent.dataset.silent = it.silent_seconds ?? 0;
    silent.dataset.lease = it.lease_seconds ?? 3600;
    age.firstElementChild.dataset.age = it.age_seconds ?? 0;
    say(waiters, count(it.waiters));
    waiters.classList.toggle("some", it.waiters > 0);
  });
}

function flightRow(it) {
  return el("tr", { role: "row" }, el("th", { role: "rowheader", scope: "row" }, ...graph(it)),
    cell("Owner"), cell("Phase", el("span", { class: "phase" }), el("span", { class: "silent" })),
    cell("For", el("span", {})), cell("Waiting"));
}

function cell(name, ...children) {
  const numeric = ["For", "Waiting", "Hit rate", "Time saved", "Avoided", "Entries", "Size", "Evicted"].includes(name);
  return el("td", { role: "cell", "data-name": name, class: numeric ? "n" : null }, ...children);
}

function time(at) {
  return el("time", { "data-at": at, datetime: new Date(at * 1000).toISOString(), title: exact(at) });
}

const kinds = { compiler_error: "compiler error", out_of_memory: "out of memory" };

function showFailures(stats) {
  const failures = stats.recent_failures;
  $("failures-nothing").hidden = failures.length > 0;
  say($("failures-count"), failures.length ? count(failures.length) : "");
  keep($("failures"), failures, (it) => `${place(it)} ${it.created_at}`, failureItem, (item, it) => {
    sayGraph(item, it);
    say(item.querySelector("pre"), it.text || "It said nothing.");
  });
}

function failureItem(it) {
  const until = isNumber(it.expires_at) ? ` · remembered until ${exact(it.expires_at)}` : "";
  const kind = kinds[it.kind] ?? String(it.kind ?? "failure").replaceAll("_", " ");
  return el("li", {}, el("details", {},
    el("summary", {}, el("span", { class: "what" }, ...graph(it)), el("span", { class: "tag bad" }, kind), time(it.created_at)),
    el("pre", { tabindex: 0 }),
    el("p", { class: "note" }, `on ${it.host || "an unknown host"}${until}`)));
}

function showEvictions(stats, namespaces) {
  const evictions = stats.recent_evictions;
  const freed = sum(namespaces, "evicted_bytes");
  $("evictions-nothing").hidden = evictions.length > 0;
  say($("evictions-count"), freed ? `${bytes(freed)} freed so far` : "");
  keep($("evictions"), evictions, (it) => `${place(it)} ${it.at}`, evictionItem, sayGraph);
}

function evictionItem(it) {
  return el("li", { class: "flat" }, el("span", { class: "what" }, ...graph(it)),
    el("span", { class: "tag" }, it.reason || "evicted"), el("span", { class: "n" }, bytes(it.bytes)), time(it.at));
}

function showNamespaces(namespaces) {
  const wanted = $("filter").value.trim().toLowerCase();
  const found = namespaces.filter(([name]) => name.toLowerCase().includes(wanted));
  found.sort(([one, a], [other, b]) => (b.seconds_saved ?? 0) - (a.seconds_saved ?? 0) || (one < other ? -1 : 1));
  $("namespaces").hidden = !found.length;
  $("namespaces-nothing").hidden = found.length > 0;
  say($("namespaces-nothing"), namespaces.length ? `None of the ${count(namespaces.length)} namespaces has “${wanted}” in its name.` : "No namespace has been used yet.");
  keep($("namespaces").tBodies[0], found, ([name]) => name, namespaceRow, sayNamespace);
}

function namespaceRow([name]) {
  return el("tr", { role: "row" }, el("th", { role: "rowheader", scope: "row" }, name),
    cell("Hit rate"), cell("Time saved"), cell("Avoided"), cell("Entries"),
    cell("Size", el("span", {}), el("div", { class: "meter", hidden: "" }, el("div", { class: "used" }), el("div", { class: "reserved" }))),
    cell("Evicted"));
}

function sayNamespace(row, [, it]) {
  const [, rate, saved, avoided, entries, size, evicted] = row.cells;
  say(rate, percent(share(it.hits, it.hits + it.misses)));
  rate.title = `${counted(it.hits, "hit")}, ${counted(it.misses, "miss", "misses")}`;
  say(saved, amount(it.seconds_saved));
  say(avoided, count(it.compiles_avoided));
  say(entries, it.failures ? `${count(it.entries)} + ${counted(it.failures, "failure")}` : count(it.entries ?? it.stores));
  const [used, quota] = [it.bytes ?? it.bytes_stored, it.quota_bytes];
  say(size.firstElementChild, quota > 0 ? `${bytes(used)} of ${bytes(quota)}` : bytes(used));
  const meter = size.lastElementChild;
  meter.hidden = !(quota > 0);
  if (!meter.hidden) fill(meter, used, it.reserved_bytes ?? 0, quota);
  say(evicted, it.evictions ? `${count(it.evictions)} · ${bytes(it.evicted_bytes)}` : "–");
}

function showHealth(stats) {
  const { store } = stats;
  say($("where"), store.url);
  const facts = [
    ["Store", store.reachable ? "answers" : "does not answer", store.reachable ? "good" : "bad"],
    ["Leases", store.leases === null ? "not tried yet" : store.leases ? "each graph is compiled once" : "the store does not exclude: graphs may compile twice", store.leases === false ? "warn" : ""],
    ["Replica", stats.replica, ""],
    ["Version", stats.version, ""],
    ["Server errors", count(stats.requests.errors ?? 0), stats.requests.errors ? "warn" : ""],
  ];
  keep($("health"), facts, ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd", {})), (item, [, text, mood]) => {
    say(item.lastElementChild, text);
    item.lastElementChild.className = mood;
  });
  if (!$("uptime")) {
    $("health").append(el("div", { "data-key": "Up for" }, el("dt", {}, "Up for"), el("dd", { id: "uptime" })));
  }
}

/** Takes what was shown off the page: whoever looks next may see less. */
export function forget() {
  for (const id of ["failures", "evictions", "health", "chart"]) $(id).replaceChildren();
  for (const id of ["flight", "namespaces"]) $(id).tBodies[0].replaceChildren();
  $("chart-figures").querySelector("tbody").replaceChildren();
  for (const text of document.querySelectorAll(".tile .big, .tile .sub, .count, #where")) say(text, "");
  drawn = "";
}

/** The line in the window's title, for a tab that nobody looks at. */
export function title(stats) {
  const graphs = stats.in_flight_total;
  return `${graphs ? `${count(graphs)} compiling · ` : ""}neuron-env cache`;
}

