// Asks for the statistics, shows them, and says honestly when they are old.

import { $, say } from "./dom.js";
import { forget, show, showTimes, title } from "./sections.js";
import { Refusal, Source, token } from "./source.js";
import { clockSeconds, running } from "./words.js";

const EVERY = 2000; // milliseconds between questions
const LONGEST = 10000; // the same while nobody answers

let source = new Source(); // of one principal
let stats = null;
let failures = 0;
let lastAnswer = 0; // performance.now()
let lastAnswerAt = 0; // seconds since 1970, by this clock
let timer = 0;
let asking = false;
let again = false;

const here = () => Date.now() / 1000;
const now = () => here() + stats.offset; // by the service's clock

async function ask() {
  if (asking) {
    again = true;
    return;
  }
  clearTimeout(timer);
  asking = true;
  again = false;
  const mine = source;
  try {
    const answer = await mine.read();
    if (mine === source) answered(answer);
  } catch (error) {
    if (mine === source) failed(error);
  } finally {
    asking = false;
  }
  // A hidden page costs nobody anything.
  if (again) ask();
  else if (!document.hidden && $("token").dataset.needed !== "yes") timer = setTimeout(ask, pause());
}

function pause() {
  const longer = failures ? Math.min(LONGEST, EVERY * 1.5 ** (failures - 1)) : EVERY;
  return longer * (0.9 + 0.2 * Math.random()); // pages that were opened together part
}

function answered(answer) {
  const news = stats === null || answer.heardAt !== stats.heardAt;
  stats = answer;
  failures = 0;
  lastAnswer = performance.now();
  lastAnswerAt = here();
  closeForm();
  $("numbers").hidden = false;
  $("token-open").textContent = token.get() ? "forget the token" : "use a token";
  if (news) show(stats, now());
  showState();
}

function failed(error) {
  if (error instanceof Refusal && (error.status === 401 || error.status === 403)) {
    const had = token.get() !== null;
    token.set(null);
    restart();
    openForm(had ? `The service did not take this token: ${error.message}` : "", true);
    showState();
    return;
  }
  failures += 1;
  showState(error);
}

function showState(error) {
  const state = currentState();
  const before = document.body.dataset.state;
  document.body.dataset.state = state;
  say($("state"), { starting: "Starting", locked: "Locked", live: "Live", draining: "Draining", sick: "Store down", stale: "No answer" }[state]);
  if (state !== "stale") say($("state-for"), "");
  document.title = state === "stale" ? "no answer · neuron-env cache" : stats ? title(stats) : "neuron-env cache";
  const banner = $("banner");
  banner.hidden = !["draining", "sick", "stale"].includes(state);
  if (state === "draining") say(banner, "This replica is about to end: it finishes what runs and gives no new leases.");
  if (state === "sick") say(banner, `The store at ${stats.store.url} does not answer: no hits until it does, and jobs compile for themselves.`);
  // Said once, in words that stay: a screen reader need not hear the seconds.
  if (state === "stale" && (before !== "stale" || error)) say(banner, staleText(error));
}

function staleText(error) {
  const why = reason(error);
  if (!stats) return `${why} There are no numbers yet; this page keeps trying.`;
  return `${why} The numbers are those of ${clockSeconds(lastAnswerAt)}; this page keeps trying.`;
}

function reason(error) {
  if (error instanceof Refusal) return `The service answers ${error.status}: ${error.message}.`;
  return error?.name === "TimeoutError" ? "The service takes too long to answer." : "The service does not answer.";
}

function currentState() {
  if ($("token").dataset.needed === "yes") return "locked";
  if (failures) return "stale";
  if (!stats) return "starting";
  if (stats.draining) return "draining";
  return stats.store.reachable ? "live" : "sick";
}

function tick() {
  if (!stats || document.hidden) return;
  if (failures) {
    // Old ages do not grow: nobody knows.
    say($("state-for"), ` for ${running((performance.now() - lastAnswer) / 1000)}`);
    return;
  }
  showTimes(stats, now());
}

function openForm(error, needed) {
  $("token").hidden = false;
  $("token").dataset.needed = needed ? "yes" : "no";
  $("token-title").textContent = needed ? "This service wants a token" : "Use a token";
  $("token-cancel").hidden = needed;
  say($("token-error"), error);
  $("token-field").focus();
}

function closeForm() {
  if ($("token").dataset.needed === "no") return; // somebody is typing
  $("token").hidden = true;
  $("token").dataset.needed = "";
}

/** Begins anew, for another principal. */
function restart() {
  source = new Source();
  stats = null;
  forget();
  $("numbers").hidden = true;
}

function use(value) {
  token.set(value);
  restart();
  $("token-field").value = "";
  $("token").dataset.needed = "";
  $("token").hidden = true;
  ask();
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = $("token-field").value.trim();
  // Anything else cannot be sent in a header.
  if (/^[\x21-\x7e]+$/.test(value)) use(value);
  else say($("token-error"), "A token has letters, digits and signs only, and no blanks.");
});
$("token-cancel").addEventListener("click", () => {
  $("token").dataset.needed = "";
  closeForm();
});
$("token-open").addEventListener("click", () => (token.get() ? use(null) : openForm("", $("token").dataset.needed === "yes")));
$("filter").addEventListener("input", () => stats && show(stats, now()));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) ask();
});
new ResizeObserver(() => stats && !$("numbers").hidden && show(stats, now())).observe($("chart"));
say($("here"), location.origin);
setInterval(tick, 1000);
ask();
