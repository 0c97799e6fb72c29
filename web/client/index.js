/**
 * Berth in the browser: sends files straight to S3, and knows when they are active.
 *
 *     const client = new Client({ url: "https://uploads.example.com", token });
 *     const upload = client.upload(file, { collection: "films" });
 *     upload.addEventListener("progress", () => show(upload.sent, upload.size, upload.rate, upload.eta));
 *     const { file: record } = await upload.done;
 *
 * Plain modules without a dependency; they run as they are.
 */
import { Api } from "./api.js";
import { codeOf } from "./errors.js";
import { Hasher } from "./hash.js";
import { eta } from "./rate.js";
import { DEFAULT_RETRY, Slots } from "./retry.js";
import { put } from "./s3.js";
import { StateStore } from "./state.js";
import { Upload } from "./upload.js";

export { BerthError, LOCAL, codeOf, sentence } from "./errors.js";
export { Upload } from "./upload.js";

/** @typedef {import("./upload.js").UploadOptions} UploadOptions */
/** @typedef {import("./upload.js").Result} Result */
/** @typedef {import("./upload.js").State} State */
/** @typedef {import("./state.js").Saved} Saved */
/** @typedef {import("./wire.js").FileRecord} FileRecord */
/** @typedef {import("./wire.js").ContentURL} ContentURL */

/**
 * @typedef {object} ClientOptions
 * @property {string} [url]  of the server; the page's own origin if absent
 * @property {import("./api.js").TokenSource} token
 * @property {string} [owner]  whose uploads are remembered together on this machine, such as the user's id; "" if absent
 * @property {number} [parallel]  parts under way at once, over all files; 4 if absent. Memory: so many parts, while they are hashed
 * @property {number} [files]  files under way at once; 4 if absent
 * @property {Partial<import("./retry.js").RetryPolicy>} [retry]
 * @property {typeof fetch} [fetch]  for calls to the server
 * @property {import("./s3.js").Put} [put]  for parts to S3
 *
 * @typedef {object} Totals
 * @property {number} files
 * @property {number} done  files
 * @property {number} failed  files
 * @property {number} size  bytes
 * @property {number} sent  bytes
 * @property {number} rate  bytes per second
 * @property {number | null} eta  seconds; null while it cannot be told
 */

/** Fires "state" and "progress" for each of its uploads, with the upload as `detail`. */
export class Client extends EventTarget {
  /** @type {Map<string, { algorithm?: import("./wire.js").Algorithm, single: number }>} */ #learnt = new Map();
  /** @type {Set<string>} */ #claimed = new Set();

  /** @param {ClientOptions} o */
  constructor(o) {
    super();
    this.owner = o.owner ?? "";
    this.parallel = Math.max(1, o.parallel ?? 4);
    this.retry = { ...DEFAULT_RETRY, ...o.retry };
    this.api = new Api({ url: o.url ?? globalThis.location?.origin ?? "", token: o.token, retry: this.retry, fetch: o.fetch });
    this.put = o.put ?? put;
    this.slots = new Slots(this.parallel);
    this.places = new Slots(Math.max(1, o.files ?? 4));
    const cores = globalThis.navigator?.hardwareConcurrency ?? 2;
    this.hasher = new Hasher(Math.max(1, Math.min(this.parallel, cores - 1)));
    this.state = new StateStore();
    /** Those that were begun here, until they are dropped. @type {Set<Upload>} */
    this.uploads = new Set();
    for (const type of ["online", "offline"]) {
      globalThis.addEventListener?.(type, this.#network);
    }
  }

  #network = () => {
    for (const u of this.uploads) u.network();
  };

  /**
   * Begins to send a file, or goes on with it where an earlier page was closed.
   *
   * @param {File} file
   * @param {UploadOptions} [options]
   */
  upload(file, options = {}) {
    const u = new Upload(this, file, options);
    this.uploads.add(u);
    return u;
  }

  /** Takes an upload that has ended out of the totals. @param {Upload} u */
  drop(u) {
    this.uploads.delete(u);
  }

  /** @returns {Totals} */
  totals() {
    const t = { files: 0, done: 0, failed: 0, size: 0, sent: 0, rate: 0, eta: /** @type {number | null} */ (null) };
    let rest = 0;
    for (const u of this.uploads) {
      if (u.state === "cancelled") continue;
      t.files++;
      if (u.state === "done") t.done++;
      if (u.state === "failed") t.failed++;
      else rest += u.size - u.sent;
      t.size += u.size;
      t.sent += u.sent;
      t.rate += u.rate;
    }
    t.eta = eta(rest, t.rate);
    return t;
  }

  /** What earlier pages left unfinished at this server. @returns {Promise<Saved[]>} */
  async pending() {
    return (await this.state.all()).filter((s) => s.server === this.api.url && s.owner === this.owner && s.uploadId && !this.#claimed.has(s.key));
  }

  /**
   * Goes on with what an earlier page left, if it has the file's handle and the user
   * lets us read it: call it from a click. Without a handle, give the file to upload().
   *
   * @param {Saved} saved
   * @param {UploadOptions} [options]
   * @returns {Promise<Upload | null>} null: the file must be chosen again
   */
  async reopen(saved, options = {}) {
    const h = saved.handle;
    if (!h) return null;
    try {
      const ask = { mode: "read" };
      if (h.queryPermission && (await h.queryPermission(ask)) !== "granted" && (await h.requestPermission(ask)) !== "granted") return null;
      const file = await h.getFile();
      if (file.size !== saved.size || file.lastModified !== saved.lastModified) return null;
      return this.upload(file, { ...options, collection: saved.collection, handle: h });
    } catch {
      return null; // it is gone
    }
  }

  /** Gives up what an earlier page left, also at the server. @param {Saved} saved */
  async discard(saved) {
    await this.state.remove(saved.key);
    if (!saved.uploadId) return;
    try {
      await this.api.abort(saved.uploadId);
    } catch (err) {
      if (!["NOT_FOUND", "SESSION_CLOSED", "SESSION_EXPIRED"].includes(codeOf(err))) throw err;
    }
  }

  /** Ends the workers. Uploads should have ended before. */
  close() {
    this.hasher.close();
    for (const type of ["online", "offline"]) globalThis.removeEventListener?.(type, this.#network);
  }

  // ---- for Upload

  /** A key that no other upload here has: two files may look the same. @param {string} key */
  claim(key) {
    let own = key;
    for (let n = 2; this.#claimed.has(own); n++) own = `${key}#${n}`;
    this.#claimed.add(own);
    return own;
  }

  /** @param {string} key */
  release(key) {
    this.#claimed.delete(key);
  }

  /** What is known of a collection from the server's answers. @param {string} collection */
  habits(collection) {
    return this.#learnt.get(collection) ?? { algorithm: undefined, single: 16 * 1024 * 1024 };
  }

  /** @param {import("./wire.js").Upload} up @param {string} [asked] */
  learn(up, asked) {
    const h = { ...this.habits(up.collection) };
    if (!asked && up.checksum?.algorithm) h.algorithm = up.checksum.algorithm;
    if (up.method === "multipart") h.single = Math.min(h.single, up.size - 1);
    this.#learnt.set(up.collection, h);
  }
}
