/** How often and how soon a request is sent again; and waiting in general. */

/**
 * @typedef {object} RetryPolicy
 * @property {number} attempts  in all, the first included
 * @property {number} base  milliseconds; ceiling of the first wait, doubles from there
 * @property {number} cap  milliseconds; ceiling of any wait that the server did not ask for
 */

/** Lasts about half a minute; time without any network does not count. @type {RetryPolicy} */
export const DEFAULT_RETRY = Object.freeze({ attempts: 8, base: 250, cap: 10_000 });

/** Bounds how long a server can make a client wait, in milliseconds. */
const MAX_RETRY_AFTER = 120_000;

/**
 * Milliseconds before attempt n+1, n from 1: full jitter, that is uniform in
 * [0, ceiling], so that clients which failed together do not come back together. What
 * the server asks for is the least.
 *
 * @param {RetryPolicy} p
 * @param {number} n
 * @param {number} [after]  milliseconds
 */
export function wait(p, n, after = 0) {
  const ceiling = Math.min(p.cap, p.base * 2 ** Math.min(n - 1, 30));
  return Math.max(Math.random() * ceiling, Math.min(after, MAX_RETRY_AFTER));
}

/** Milliseconds between two looks at what the server does: 50, then more, up to 2 s. @param {number} n */
export function pollWait(n) {
  return Math.min(2000, 50 * 2 ** Math.min(n - 1, 10));
}

/**
 * Whether a status says "later it may work". 501 and 505 say never; what is above is
 * made up by proxies.
 *
 * @param {number} status
 */
export function passing(status) {
  return [408, 429, 500, 502, 503, 504].includes(status) || status > 505;
}

/**
 * Milliseconds that a Retry-After asks for; 0 if it does not.
 *
 * @param {string | null} value
 * @param {number} now
 */
export function retryAfter(value, now) {
  if (!value) return 0;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, MAX_RETRY_AFTER);
  if (!value.endsWith("GMT")) return 0; // Date.parse would make a date of nearly anything
  const at = Date.parse(value);
  return Number.isNaN(at) ? 0 : Math.min(Math.max(0, at - now), MAX_RETRY_AFTER);
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Whether the browser knows that there is no network. Elsewhere: no. */
export function offline() {
  return typeof navigator !== "undefined" && navigator.onLine === false;
}

/**
 * Waits for a network. What a browser believes of it is a hint, so it is not believed
 * for longer than ten seconds at a time.
 *
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function online(signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const target = /** @type {EventTarget} */ (globalThis);
    const end = (/** @type {() => void} */ settle) => {
      clearTimeout(timer);
      target.removeEventListener("online", back);
      signal?.removeEventListener("abort", stop);
      settle();
    };
    const back = () => end(resolve);
    const stop = () => end(() => reject(signal?.reason));
    const timer = setTimeout(back, 10_000);
    target.addEventListener("online", back);
    signal?.addEventListener("abort", stop);
  });
}

/** So many at a time, first come first served. */
export class Slots {
  /** @param {number} n */
  constructor(n) {
    this.free = n;
    /** @type {(() => void)[]} */
    this.queue = [];
  }

  /**
   * Waits for a slot and returns what gives it back; giving back twice is once.
   *
   * @param {AbortSignal} [signal]
   * @returns {Promise<() => void>}
   */
  take(signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const got = () => {
        signal?.removeEventListener("abort", stop);
        let held = true;
        resolve(() => {
          if (held) this.#give();
          held = false;
        });
      };
      const stop = () => {
        this.queue = this.queue.filter((q) => q !== got);
        reject(signal?.reason);
      };
      if (this.free > 0) {
        this.free--;
        return got();
      }
      signal?.addEventListener("abort", stop, { once: true });
      this.queue.push(got);
    });
  }

  #give() {
    const next = this.queue.shift();
    if (next) next();
    else this.free++;
  }
}
