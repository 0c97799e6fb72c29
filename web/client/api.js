/** The server's routes, each one call that is tried until there is an answer that counts. */
import { BerthError, LOCAL, cancelled, problem } from "./errors.js";
import { offline, online, passing, retryAfter, sleep, wait } from "./retry.js";

/**
 * A bearer token, or what gets one: asked again with refresh after the server has
 * refused the last.
 * @typedef {string | ((ask: { refresh: boolean }) => string | Promise<string>)} TokenSource
 *
 * @typedef {object} Call
 * @property {string} op  for errors
 * @property {string} method
 * @property {string} path
 * @property {unknown} [body]
 * @property {string} [key]  Idempotency-Key
 * @property {AbortSignal} [signal]
 * @property {number} [timeout]  milliseconds
 * @property {number} [attempts]  the policy's if absent
 * @property {boolean} [keepalive]  the request outlives the page
 */

const TIMEOUT = 60_000;
const COMPLETE_TIMEOUT = 150_000; // completing thousands of parts takes a store its time

export function newKey() {
  // randomUUID is for secure contexts only; this is not.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

export class Api {
  /**
   * @param {object} o
   * @param {string} o.url
   * @param {TokenSource} o.token
   * @param {import("./retry.js").RetryPolicy} o.retry
   * @param {typeof fetch} [o.fetch]
   */
  constructor(o) {
    this.url = o.url.replace(/\/+$/, "");
    this.token = o.token;
    this.retry = o.retry;
    this.fetch = o.fetch ?? ((input, init) => fetch(input, init));
    /** Milliseconds that the server's clock is ahead of ours, as far as it lets us see. */
    this.ahead = 0;
  }

  /** @param {import("./wire.js").OpenRequest} body @param {string} key @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
  open(body, key, signal) {
    return this.call({ op: "open", method: "POST", path: "/v1/uploads", body, key, signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
  upload(id, signal) {
    return this.call({ op: "upload", method: "GET", path: `/v1/uploads/${id}`, signal });
  }

  /** @param {string} id @param {import("./wire.js").SignRequest} body @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").SignResponse>} */
  sign(id, body, signal) {
    return this.call({ op: "sign", method: "POST", path: `/v1/uploads/${id}/parts`, body, signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").PartsResponse>} */
  parts(id, signal) {
    return this.call({ op: "parts", method: "GET", path: `/v1/uploads/${id}/parts`, signal });
  }

  /** @param {string} id @param {import("./wire.js").CompleteRequest} body @param {string} key @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
  complete(id, body, key, signal) {
    return this.call({ op: "complete", method: "POST", path: `/v1/uploads/${id}/complete`, body, key, signal, timeout: COMPLETE_TIMEOUT });
  }

  /** @param {string} id @param {import("./wire.js").CommitRequest} body @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
  commit(id, body, signal) {
    return this.call({ op: "commit", method: "POST", path: `/v1/uploads/${id}/commit`, body, key: newKey(), signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
  abort(id, signal) {
    return this.call({ op: "abort", method: "DELETE", path: `/v1/uploads/${id}`, key: newKey(), signal, attempts: 3, keepalive: true });
  }

  /** @param {{ collection?: string, state?: string, cursor?: string, limit?: number }} [q] @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileList>} */
  files(q = {}, signal) {
    const s = new URLSearchParams(Object.entries(q).filter(([, v]) => v !== undefined && v !== "").map(([k, v]) => [k, String(v)]));
    return this.call({ op: "files", method: "GET", path: `/v1/files${s.size ? `?${s}` : ""}`, signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
  file(id, signal) {
    return this.call({ op: "file", method: "GET", path: `/v1/files/${id}`, signal });
  }

  /** A short-lived address of the content. @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").ContentURL>} */
  contentURL(id, signal) {
    return this.call({ op: "url", method: "GET", path: `/v1/files/${id}/url`, signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").History>} */
  history(id, signal) {
    return this.call({ op: "history", method: "GET", path: `/v1/files/${id}/history`, signal });
  }

  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
  remove(id, signal) {
    return this.call({ op: "delete", method: "DELETE", path: `/v1/files/${id}`, key: newKey(), signal });
  }

  /**
   * @param {Call} c
   * @returns {Promise<any>}
   */
  async call(c) {
    let refresh = false;
    const attempts = c.attempts ?? this.retry.attempts;
    for (let attempt = 1; ; attempt++) {
      if (c.signal?.aborted) throw c.signal.reason;
      const { value, error, after } = await this.#once(c, refresh);
      if (!error) return value;
      if (c.signal?.aborted) throw c.signal.reason;
      if (error.status === 401 && !refresh && typeof this.token === "function") {
        refresh = true;
        continue;
      }
      const again = error.code === LOCAL.NETWORK || passing(error.status) ||
        error.code === "IDEMPOTENCY_IN_PROGRESS" || error.code === "BUSY";
      if (!again || attempt >= attempts) throw error;
      if (error.code === LOCAL.NETWORK && offline()) {
        await online(c.signal);
        attempt = 0; // no network is nobody's failure
        continue;
      }
      await sleep(wait(this.retry, attempt, after), c.signal);
    }
  }

  /**
   * @param {Call} c
   * @param {boolean} refresh
   * @returns {Promise<{ value?: any, error?: BerthError, after?: number }>}
   */
  async #once(c, refresh) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json, application/problem+json" };
    try {
      const token = typeof this.token === "function" ? await this.token({ refresh }) : this.token;
      if (token) headers.Authorization = `Bearer ${token}`;
    } catch (cause) {
      return { error: new BerthError(LOCAL.NETWORK, { op: "token", cause }) };
    }
    if (c.body !== undefined) headers["Content-Type"] = "application/json";
    if (c.key) headers["Idempotency-Key"] = c.key;
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), c.timeout ?? TIMEOUT);
    const stop = () => limit.abort();
    c.signal?.addEventListener("abort", stop, { once: true });
    try {
      const res = await this.fetch(this.url + c.path, {
        method: c.method, headers, signal: limit.signal,
        body: c.body === undefined ? undefined : JSON.stringify(c.body),
        credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer", keepalive: c.keepalive ?? false,
      });
      const text = await res.text();
      const at = Date.parse(res.headers.get("Date") ?? ""); // whole seconds, same origin only
      if (!Number.isNaN(at)) this.ahead = Math.abs(at - Date.now()) > 2000 ? at - Date.now() : 0;
      if (!res.ok) {
        return {
          error: problem(c.op, res.status, res.headers.get("Content-Type") ?? "", text, res.headers.get("X-Request-Id") ?? ""),
          after: retryAfter(res.headers.get("Retry-After"), Date.now()),
        };
      }
      try {
        return { value: text === "" ? undefined : JSON.parse(text) };
      } catch (cause) {
        return { error: new BerthError(LOCAL.BAD_ANSWER, { op: c.op, cause }) };
      }
    } catch (cause) {
      if (c.signal?.aborted) return { error: cancelled() };
      return { error: new BerthError(LOCAL.NETWORK, { op: c.op, cause }) };
    } finally {
      clearTimeout(timer);
      c.signal?.removeEventListener("abort", stop);
    }
  }
}
