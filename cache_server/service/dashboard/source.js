// Where the numbers come from: /v1/stats, asked again and again, answered 304 while nothing has changed.

const TOKEN = "neuron-env-cache-token";
const DAY = 24 * 3600;
const FLIGHTS = 100; // a fleet that starts has thousands
const PATIENCE = 8000; // milliseconds for one answer

/** The token of this tab. Storage that is forbidden holds nothing. */
export const token = {
  get() {
    try {
      return sessionStorage.getItem(TOKEN);
    } catch {
      return null;
    }
  },
  set(value) {
    try {
      if (value) sessionStorage.setItem(TOKEN, value);
      else sessionStorage.removeItem(TOKEN);
    } catch {
      // The form then asks again after a reload.
    }
  },
};

/** The service answered, but not with statistics. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export class Source {
  #etag = null;
  #stats = null;
  #heard = 0;
  #history = [];
  #whole = false;
  #offset = 0;

  /**
   * The statistics, with `history` whole, `heardAt`, the performance.now() of the answer their ages are counted from,
   * and `offset`, the service's clock less this one's in seconds. Throws Refusal, or whatever fetch throws when nobody
   * answers.
   */
  async read() {
    // The last line that is here may still grow; those before it are final.
    const since = this.#whole ? (this.#history.at(-1)?.at ?? 0) : 0;
    const headers = {};
    if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
    if (this.#etag) headers["If-None-Match"] = this.#etag;
    const answer = await fetch(`/v1/stats?max_age=1&flights=${FLIGHTS}&since=${since}`, {
      headers,
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(PATIENCE),
    });
    this.#compare(answer.headers.get("Date"));
    if (answer.status === 304 && this.#stats) return this.#now();
    if (!answer.ok) throw new Refusal(answer.status, await detail(answer));
    const stats = await answer.json();
    // Another process has a history of its own: of that, this answer has only the end, and the next brings it all.
    const other = this.#stats !== null && stats.replica !== this.#stats.replica;
    if (other) this.#history = [];
    this.#whole = !other;
    this.#etag = other ? null : answer.headers.get("ETag");
    this.#take(stats);
    return this.#now();
  }

  #take(stats) {
    const first = stats.history[0]?.at ?? Infinity;
    const history = [...this.#history.filter((line) => line.at < first), ...stats.history];
    const newest = history.at(-1)?.at ?? 0;
    this.#history = history.filter((line) => line.at > newest - DAY);
    this.#stats = stats;
    this.#heard = performance.now();
  }

  #compare(date) {
    // The header has whole seconds, and the answer took its time: a small difference is none.
    const offset = Date.parse(date ?? "") / 1000 + 0.5 - Date.now() / 1000;
    this.#offset = Math.abs(offset) > 3 ? Math.round(offset) : 0;
  }

  #now() {
    return { ...this.#stats, history: this.#history, heardAt: this.#heard, offset: this.#offset };
  }
}

async function detail(answer) {
  try {
    const problem = await answer.json();
    return problem.detail || problem.title || answer.statusText;
  } catch {
    return answer.statusText;
  }
}
