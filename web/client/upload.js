/**
 * One file on its way: open or go on, send what is missing, complete, mend, wait until
 * it is active. What a person sees of it is `state`, the progress, and in the end
 * `record` or `error`.
 */
import { newKey } from "./api.js";
import { decode, encode, equal, known, whole } from "./digest.js";
import { BerthError, LOCAL, cancelled, codeOf, partNumbers } from "./errors.js";
import { readable } from "./hash.js";
import { Rate, eta } from "./rate.js";
import { offline, online, pollWait, sleep, wait } from "./retry.js";
import { S3Error, damaged, remedy } from "./s3.js";
import { SignedURL, Signer } from "./signer.js";
import { OPEN_KEY_LIFE, fingerprint } from "./state.js";

/** @typedef {import("./wire.js").Algorithm} Algorithm */
/** @typedef {import("./wire.js").FileRecord} FileRecord */

/**
 * - waiting: others are first
 * - preparing: hashed, opened, or looked for what S3 holds of it
 * - sending
 * - paused
 * - checking: all bytes are at S3, which attests them; then the collection's own steps
 * - done: active, or with a deferred commit verified
 * - failed: `error` says why; retry() goes on
 * - cancelled
 * @typedef {"waiting" | "preparing" | "sending" | "paused" | "checking" | "done" | "failed" | "cancelled"} State
 *
 * @typedef {object} UploadOptions
 * @property {string} [collection]  "default" if absent
 * @property {string} [name]  the file's own if absent
 * @property {string} [contentType]  the file's own if absent
 * @property {unknown} [metadata]  a JSON object
 * @property {"auto" | "deferred"} [commit]  the collection's if absent
 * @property {boolean} [continue]  go on with an open upload of the same content, whoever began it
 * @property {boolean} [declare]  hash the whole file before it is opened, so that one that is there already need not be sent; files up to 16 MiB always are
 * @property {Algorithm} [algorithm]  the collection's if absent
 * @property {any} [handle]  the file's FileSystemFileHandle: a later page can go on by itself
 * @property {boolean} [keep]  remember the upload for a later page; true if absent
 * @property {AbortSignal} [signal]  aborting it is cancel()
 * @property {number} [wait]  milliseconds from the last byte until active; ten minutes if absent
 *
 * @typedef {object} Result
 * @property {import("./wire.js").Upload} upload
 * @property {FileRecord | null} file  null if the commit is deferred
 * @property {boolean} instant  the server had the file: nothing was sent
 * @property {boolean} resumed  an earlier session was continued
 * @property {number} sent  bytes sent by this page, those sent again included
 * @property {number} held  bytes that S3 held already
 */

/** Bytes up to which a file is hashed before it is opened, in the hope that it goes by one PUT: the server's default limit of those. */
const SMALL = 16 * 1024 * 1024;
/** How often parts that the server misses or refuses are sent again. */
const MENDS = 4;
const MAX_PARTS = 10_000;

const PAUSED = Symbol("paused");
const VANISHED = Symbol("the session is gone at S3");

export class Upload extends EventTarget {
  /** @type {import("./index.js").Client} */ #client;
  /** @type {UploadOptions} */ #o;
  #life = new AbortController(); // ends with cancel()
  #flight = new AbortController(); // of the parts under way; ends with each pause
  /** @type {{ promise: Promise<void>, resolve: () => void } | null} */ #paused = null;
  /** @type {(() => void) | null} */ #place = null;
  /** @type {Promise<void> | null} */ #taking = null;
  /** @type {"preparing" | "sending" | "checking" | "done" | "failed" | "cancelled"} */ #phase = "preparing";
  /** @type {State} */ #told = "waiting";

  #key;
  /** @type {import("./state.js").Saved | null} */ #saved = null;
  /** @type {(Uint8Array | null)[]} */ #digests = [];
  /** @type {SignedURL | null} */ #first = null;
  /** @type {Signer | null} */ #signer = null;
  #stated = false; // the whole checksum was declared at open
  #restart = false;

  #arrived = 0;
  /** @type {Map<number, number>} */ #moving = new Map();
  #left = 0;
  #rate = new Rate();

  /**
   * @param {import("./index.js").Client} client
   * @param {File} file
   * @param {UploadOptions} o
   */
  constructor(client, file, o) {
    super();
    this.#client = client;
    this.#o = o;
    this.file = file;
    this.name = o.name ?? file.name;
    this.size = file.size;
    this.collection = o.collection ?? "default";
    /** The session, once it is open. @type {import("./wire.js").Upload | null} */
    this.upload = null;
    /** The file's record, once there is one. @type {FileRecord | null} */
    this.record = null;
    /** @type {BerthError | null} */
    this.error = null;
    this.instant = false;
    this.resumed = false;
    /** Bytes that S3 held already. */
    this.held = 0;
    this.#key = client.claim(fingerprint(client.api.url, client.owner, this.collection, file));
    if (o.signal?.aborted) this.cancel();
    else o.signal?.addEventListener("abort", () => this.cancel(), { once: true });
    /** What comes of it; a new one after retry(). @type {Promise<Result>} */
    this.done = this.#start();
  }

  /** @returns {State} */
  get state() {
    if (["done", "failed", "cancelled"].includes(this.#phase)) return this.#phase;
    if (this.#paused) return "paused";
    return this.#place || this.#phase === "checking" ? this.#phase : "waiting";
  }

  /** The browser says that there is no network, and this upload needs one. */
  get offline() {
    return offline() && ["preparing", "sending", "checking"].includes(this.state);
  }

  /** Bytes of the file that are at S3 or on their way. */
  get sent() {
    let n = this.#arrived;
    for (const m of this.#moving.values()) n += m;
    return Math.min(n, this.size);
  }

  /** Bytes per second over the last seconds; 0 while it cannot be told. */
  get rate() {
    return this.state === "sending" ? this.#rate.perSecond(Date.now()) : 0;
  }

  /** Seconds until the last byte has left; null while it cannot be told. */
  get eta() {
    return eta(this.size - this.sent, this.rate);
  }

  /** Whether pause() does anything: what is being checked cannot be held back. */
  get pausable() {
    return ["waiting", "preparing", "sending"].includes(this.state);
  }

  /** Stops sending. Parts under way are given up and sent again later. */
  pause() {
    if (!this.pausable) return;
    /** @type {() => void} */
    let resolve = () => {};
    const promise = /** @type {Promise<void>} */ (new Promise((r) => (resolve = r)));
    this.#paused = { promise, resolve };
    this.#flight.abort(PAUSED);
    this.#leave();
    this.#tell();
  }

  resume() {
    const p = this.#paused;
    if (!p) return;
    this.#paused = null;
    this.#flight = new AbortController();
    this.#rate.reset();
    p.resolve();
    this.#tell();
  }

  /** Gives the upload up, also at the server. */
  cancel() {
    if (["done", "cancelled"].includes(this.#phase)) return;
    const failed = this.#phase === "failed";
    this.#life.abort(cancelled());
    this.#flight.abort(this.#life.signal.reason);
    this.#paused?.resolve();
    this.#paused = null;
    if (failed) {
      this.#phase = "cancelled";
      this.error = cancelled();
      void this.#abandon().finally(() => this.#client.release(this.#key));
    }
    this.#tell();
  }

  /** Goes on after a failure: with the same session if that still lives. */
  retry() {
    if (this.#phase !== "failed") return this.done;
    this.error = null;
    this.#phase = "preparing";
    this.#flight = new AbortController();
    this.#rate.reset();
    this.done = this.#start();
    this.#tell();
    return this.done;
  }

  #start() {
    const done = this.#run();
    done.catch(() => {}); // `error` and the event tell it too
    return done;
  }

  /** @returns {Promise<Result>} */
  async #run() {
    await null; // the caller must have us first
    try {
      await this.#gate();
      const todo = await this.#begin();
      const up = this.#up();
      if (!up.instant && !["committed", "completed"].includes(up.state)) await this.#transfer(todo);
      await this.#checked();
      await this.#forget();
      this.#phase = "done";
      this.#arrived = this.size;
      this.#moving.clear();
      return {
        upload: this.#up(), file: this.record, instant: this.instant, resumed: this.resumed, sent: this.#left, held: this.held,
      };
    } catch (err) {
      if (this.#life.signal.aborted) {
        this.#phase = "cancelled";
        this.error = /** @type {BerthError} */ (this.#life.signal.reason);
        await this.#abandon();
      } else {
        this.#phase = "failed";
        this.error = err instanceof BerthError ? err : new BerthError("INTERNAL", { cause: err });
        this.#restart = this.error.code === LOCAL.FILE_CHANGED;
      }
      this.#moving.clear();
      throw this.error;
    } finally {
      this.#leave();
      if (this.#phase !== "failed") this.#client.release(this.#key);
      this.#tell();
    }
  }

  // ---- turns

  /** Passes when this upload is not paused and has a place among those under way. */
  async #gate() {
    for (;;) {
      if (this.#life.signal.aborted) throw this.#life.signal.reason;
      if (this.#paused) {
        await this.#paused.promise;
        continue;
      }
      if (this.#place) return;
      this.#taking ??= this.#client.places.take(this.#life.signal).then((give) => {
        this.#taking = null;
        if (this.#paused) return give();
        this.#place = give;
        this.#tell();
      });
      await this.#taking;
    }
  }

  #leave() {
    this.#place?.();
    this.#place = null;
  }

  /** @param {"preparing" | "sending" | "checking"} phase */
  #enter(phase) {
    this.#phase = phase;
    this.#tell();
  }

  #tell() {
    const s = this.state;
    if (s === this.#told) return;
    this.#told = s;
    this.#emit("state");
  }

  /** For the client: the network went or came back. */
  network() {
    if (["done", "failed", "cancelled"].includes(this.#phase)) return;
    this.#rate.reset();
    this.#emit("state");
  }

  /** @param {"state" | "progress"} type */
  #emit(type) {
    this.dispatchEvent(new Event(type));
    this.#client.dispatchEvent(new CustomEvent(type, { detail: this }));
  }

  /** @param {number} n @param {number} bytes of the part that have left */
  #move(n, bytes) {
    this.#left += Math.max(0, bytes - (this.#moving.get(n) ?? 0));
    if (bytes > 0) this.#moving.set(n, bytes);
    else this.#moving.delete(n);
    this.#rate.add(Date.now(), this.sent);
    this.#emit("progress");
  }

  /** @param {number} n @param {number} size */
  #arrive(n, size) {
    this.#left += size - (this.#moving.get(n) ?? 0);
    this.#moving.delete(n);
    this.#arrived += size;
    this.#rate.add(Date.now(), this.sent);
    this.#emit("progress");
  }

  // ---- the session

  #up() {
    if (!this.upload) throw new BerthError("INTERNAL");
    return this.upload;
  }

  /** Finds or opens the session and says which parts are to be sent. @returns {Promise<number[]>} */
  async #begin() {
    this.#enter("preparing");
    this.#arrived = 0;
    this.#first = null;
    const old = await this.#client.state.get(this.#key);
    if (this.#restart) {
      await this.#forget();
      this.#restart = false;
    } else if (old) {
      const todo = await this.#goOn(old);
      if (todo) return todo;
    }
    await this.#open();
    const up = this.#up();
    if (this.#saved) {
      this.#saved.uploadId = up.id;
      await this.#client.state.put(this.#saved);
    }
    if (up.resumed && up.method === "multipart") {
      this.resumed = true;
      return this.#missing();
    }
    return this.#all();
  }

  /** @param {import("./state.js").Saved} old @returns {Promise<number[] | null>} null: begin anew */
  async #goOn(old) {
    // The open was sent, perhaps, and never answered, or S3 was not asked: it is sent again.
    const again = Date.now() - old.begun < OPEN_KEY_LIFE ? old : null;
    if (!old.uploadId) {
      this.#saved = again;
      return null;
    }
    let up;
    try {
      up = await this.#client.api.upload(old.uploadId, this.#life.signal);
    } catch (err) {
      if (codeOf(err) !== "NOT_FOUND") throw err;
      return null; // of somebody else, or gone
    }
    if (up.size !== this.size || (this.#o.algorithm && this.#o.algorithm !== up.checksum.algorithm)) return null;
    if (up.state === "init") {
      this.#saved = again;
      return null;
    }
    const alive = ["uploading", "completing", "completed"].includes(up.state) ||
      (up.state === "committed" && up.file && !["failed", "deleting", "delete_failed", "deleted"].includes(up.file.state));
    if (!alive) return null;
    this.#adopt(up);
    this.#saved = old;
    this.resumed = true;
    if (up.state !== "uploading") {
      this.held = this.#arrived = this.size;
      return [];
    }
    const todo = await this.#missing();
    if (await this.#differs(todo)) return null; // the same name, size and time, and other bytes
    return todo;
  }

  /**
   * Whether the file is not the one that S3 holds parts of: the first and the last of
   * those are hashed. The rest is taken at the word of name, size and time.
   *
   * @param {number[]} todo
   */
  async #differs(todo) {
    const want = new Set(todo);
    const held = this.#all().filter((n) => !want.has(n) && this.#digests[n - 1]);
    for (const n of new Set([held[0], held.at(-1)])) {
      if (n === undefined) continue;
      const now = await this.#client.hasher.digest(this.#algorithm(), this.#slice(n));
      if (!equal(now, /** @type {Uint8Array} */ (this.#digests[n - 1]))) return true;
    }
    return false;
  }

  /**
   * Begins the session. What is small is hashed first, so that the answer to open brings
   * the one URL that is needed, for exactly those bytes.
   */
  async #open() {
    const client = this.#client;
    const habits = client.habits(this.collection);
    const guess = this.#o.algorithm ?? habits.algorithm ?? "sha256";
    const name = this.#o.algorithm ?? habits.algorithm ?? ""; // "": the collection's
    /** @type {import("./wire.js").OpenRequest} */
    const req = { collection: this.collection, name: this.name, size: this.size };
    const type = this.#o.contentType ?? this.file.type;
    if (type) req.content_type = type;
    if (this.#o.metadata !== undefined) req.metadata = this.#o.metadata;
    if (this.#o.commit) req.commit = this.#o.commit;
    if (this.#o.continue) req.continue = true;
    const plain = this.#o.algorithm ? { algorithm: this.#o.algorithm } : undefined;
    this.#digests = [];
    if (this.size <= habits.single) {
      this.#digests = [await client.hasher.digest(guess, this.file)];
      const sum = await whole(guess, "full_object", this.#digests, [this.size]);
      if (sum) req.checksum = { ...sum, algorithm: name };
    } else if (this.#o.declare) {
      const sum = await this.#foresee(guess);
      if (sum) req.checksum = { ...sum, algorithm: name };
    }
    if (!req.checksum) req.checksum = plain;
    if (this.size > SMALL && this.#o.keep !== false) {
      this.#saved ??= this.#fresh();
      await client.state.put(this.#saved);
    } else {
      this.#saved = null; // sent at once or not at all: there is nothing to resume
    }
    this.#stated = Boolean(req.checksum?.value);
    let asked = Date.now();
    let up;
    try {
      up = await client.api.open(req, this.#saved?.openKey ?? newKey(), this.#life.signal);
    } catch (err) {
      const other = this.#stated && refusesChecksum(err);
      const reused = codeOf(err) === "IDEMPOTENCY_CONFLICT" && this.#saved;
      if (!other && !reused) {
        if (err instanceof BerthError && err.status >= 400 && err.status < 500 && err.status !== 401) await this.#forget();
        throw err;
      }
      if (other) {
        // Another algorithm or geometry than was thought. Nothing has been opened.
        req.checksum = plain;
        this.#stated = false;
        this.#digests = [];
      }
      if (this.#saved) {
        this.#saved = this.#fresh();
        await client.state.put(this.#saved);
      }
      asked = Date.now();
      up = await client.api.open(req, this.#saved?.openKey ?? newKey(), this.#life.signal);
    }
    client.learn(up, this.#o.algorithm);
    const [sum] = this.#digests;
    this.#adopt(up);
    this.instant = Boolean(up.instant);
    if (up.instant) {
      this.held = this.#arrived = this.size;
      return;
    }
    if (up.method !== "single" || up.checksum.algorithm !== guess) {
      if (this.#digests.length !== up.part_count || up.checksum.algorithm !== guess) this.#digests = new Array(up.part_count).fill(null);
    } else if (this.#stated && sum && up.parts?.length === 1 && up.parts_expire_at && pins(up.parts[0], guess, encode(sum))) {
      this.#first = new SignedURL(up.parts[0], asked, Date.parse(up.parts_expire_at) - client.api.ahead);
    }
  }

  /** @returns {import("./state.js").Saved} */
  #fresh() {
    const f = this.file;
    /** @type {import("./state.js").Saved} */
    const s = {
      key: this.#key, server: this.#client.api.url, owner: this.#client.owner, collection: this.collection, name: this.name, path: f.webkitRelativePath ?? "",
      size: f.size, lastModified: f.lastModified, openKey: newKey(), begun: Date.now(),
    };
    if (this.#o.handle) s.handle = this.#o.handle;
    return s;
  }

  /** Hashes the file as the server would have it cut by default. @param {Algorithm} a */
  async #foresee(a) {
    const mib = 1024 * 1024;
    let part = 16 * mib;
    if (Math.ceil(this.size / part) > MAX_PARTS) part = Math.ceil(this.size / MAX_PARTS / mib) * mib;
    const count = Math.ceil(this.size / part);
    /** @type {Uint8Array[]} */
    const digests = new Array(count);
    let next = 0;
    const lane = async () => {
      while (next < count) {
        await this.#gate();
        const i = next++;
        if (i < count) digests[i] = await this.#client.hasher.digest(a, this.file.slice(i * part, (i + 1) * part, ""));
      }
    };
    await Promise.all(Array.from({ length: this.#client.parallel }, lane));
    this.#digests = digests;
    const lengths = digests.map((_, i) => Math.min(part, this.size - i * part));
    return whole(a, a === "sha256" ? "composite" : "full_object", digests, lengths);
  }

  /** Takes the server's plan, and refuses what makes no sense. @param {import("./wire.js").Upload} up */
  #adopt(up) {
    this.upload = up;
    if (up.instant) return;
    const n = up.part_count;
    let ok = known(up.checksum.algorithm) && up.size === this.size;
    if (up.method === "single") ok &&= n === 1;
    else ok &&= up.method === "multipart" && n >= 1 && n <= MAX_PARTS && up.part_size > 0 &&
      up.part_size * (n - 1) < up.size && up.size <= up.part_size * n;
    if (!ok) throw new BerthError(LOCAL.BAD_ANSWER, { op: "open", detail: "the server's plan makes no sense" });
    if (this.#digests.length !== n) this.#digests = new Array(n).fill(null);
  }

  /** @returns {Algorithm} */
  #algorithm() {
    return /** @type {Algorithm} */ (this.#up().checksum.algorithm);
  }

  #all() {
    return Array.from({ length: this.#up().part_count }, (_, i) => i + 1);
  }

  /** @param {number} n */
  #length(n) {
    const up = this.#up();
    if (up.method === "single") return this.size;
    return n === up.part_count ? this.size - up.part_size * (n - 1) : up.part_size;
  }

  /** No type: else the browser would send it as a header that was not signed. @param {number} n */
  #slice(n) {
    const from = this.#up().method === "single" ? 0 : this.#up().part_size * (n - 1);
    return this.file.slice(from, from + this.#length(n), "");
  }

  /** Asks S3, through the server, what it holds, and returns what it lacks. */
  async #missing() {
    if (this.#up().method === "single") return this.#all();
    const list = await this.#client.api.parts(this.#up().id, this.#life.signal);
    const held = new Set();
    this.held = 0;
    for (const p of list.parts) {
      if (p.number < 1 || p.number > this.#up().part_count || p.size !== this.#length(p.number)) continue;
      const sum = decode(this.#algorithm(), p.checksum);
      const mine = this.#digests[p.number - 1];
      if (sum && mine && !equal(sum, mine)) continue; // not what was read here: send it again
      if (sum) this.#digests[p.number - 1] = sum;
      held.add(p.number);
      this.held += p.size;
    }
    this.#arrived = this.held;
    this.#emit("progress");
    return this.#all().filter((n) => !held.has(n));
  }

  // ---- sending

  /** Sends and completes until the server has nothing more to ask for. @param {number[]} todo */
  async #transfer(todo) {
    this.#signer = new Signer(this.#client.api, this.#up().id, this.#life.signal);
    for (let round = 1; ; round++) {
      await this.#sendAll(todo);
      if (!(await readable(this.file)) && this.size > 0) throw new BerthError(LOCAL.FILE_UNREADABLE, { op: "read" });
      try {
        this.#enter("checking");
        this.upload = await this.#complete();
        return;
      } catch (err) {
        if (!(err instanceof BerthError) || round >= MENDS) throw err;
        todo = await this.#toMend(err);
        if (todo.length === 0) throw err;
        this.#first = null;
        this.#arrived = this.size - todo.reduce((n, p) => n + this.#length(p), 0);
        await sleep(wait(this.#client.retry, round), this.#life.signal);
      }
    }
  }

  /** Which parts an answer to complete asks for again. @param {BerthError} err */
  async #toMend(err) {
    const single = this.#up().method === "single";
    if (!["MISSING_PARTS", "PART_CORRUPT"].includes(err.code) && !(err.code === "SIZE_MISMATCH" && !single)) return [];
    // The answer names a bounded number of parts; count says how many there are.
    const named = partNumbers(err.details.parts, this.#up().part_count);
    if (named.length > 0 && !(err.details.count > named.length)) return named;
    const held = this.held;
    try {
      return await this.#missing();
    } catch {
      return [];
    } finally {
      this.held = held; // of the beginning
    }
  }

  /** @param {number[]} todo */
  async #sendAll(todo) {
    if (todo.length === 0) return;
    this.#enter("sending");
    const queue = [...todo];
    /** @type {{ err: unknown } | null} */
    let failure = null;
    const lane = async () => {
      while (!failure) {
        await this.#gate();
        const n = queue.shift();
        if (n === undefined) return;
        const signal = this.#flight.signal;
        try {
          const give = await this.#client.slots.take(signal);
          try {
            await this.#sendPart(n, signal);
          } finally {
            give();
          }
        } catch (err) {
          this.#move(n, 0);
          if (err === PAUSED) {
            queue.unshift(n);
            continue;
          }
          failure ??= { err };
          this.#flight.abort(err); // the others' parts
          return;
        }
      }
    };
    const lanes = await Promise.allSettled(Array.from({ length: Math.min(this.#client.parallel, queue.length) }, lane));
    if (this.#life.signal.aborted) throw this.#life.signal.reason;
    const f = /** @type {{ err: unknown } | null} */ (failure);
    if (f) {
      this.#flight = new AbortController();
      if (f.err !== VANISHED) throw f.err; // ended, or completed by another: completing tells which
    }
    for (const l of lanes) if (l.status === "rejected") throw l.reason;
  }

  /** Hashes a part and sends it until S3 has it. @param {number} n @param {AbortSignal} signal */
  async #sendPart(n, signal) {
    const { hasher, retry } = this.#client;
    const slice = this.#slice(n);
    const op = `part ${n}`;
    const before = this.#digests[n - 1];
    const sum = before && this.#first ? before : await hasher.digest(this.#algorithm(), slice);
    if (before && !equal(before, sum)) throw new BerthError(LOCAL.FILE_CHANGED, { op });
    this.#digests[n - 1] = sum;
    const checksum = encode(sum);
    /** @type {SignedURL | null} */
    let url = this.#first;
    let refusals = 0;
    for (let attempt = 1; ; attempt++) {
      if (signal.aborted) throw signal.reason;
      if (!url?.fresh()) url = await this.#sign(n, checksum);
      if (signal.aborted) throw signal.reason;
      if (url.part.size !== slice.size) throw new BerthError(LOCAL.BAD_ANSWER, { op });
      url.used = true;
      let err;
      try {
        await this.#client.put(url.part, slice, (sent) => this.#move(n, sent), signal);
        this.#arrive(n, slice.size);
        return;
      } catch (e) {
        err = e;
      }
      this.#move(n, 0);
      if (signal.aborted) throw signal.reason;
      const last = attempt >= retry.attempts;
      const single = this.#up().method === "single";
      switch (remedy(err)) {
        case "there":
          if (!single) throw refused(op, err);
          this.#arrive(n, slice.size); // completing compares it
          return;
        case "vanished":
          if (!single) throw VANISHED;
          throw refused(op, err);
        case "resign":
          // An expired URL costs one more signature; one that is refused while it should
          // be good is asked for once more, and then the refusal stands.
          if (last || (!url.expired() && ++refusals > 1)) throw refused(op, err);
          url = null;
          continue;
        case "offline":
          await online(signal);
          attempt = 0; // no network is nobody's failure
          continue;
        case "fatal":
          throw err instanceof S3Error ? refused(op, err) : err;
      }
      if (slice.size > 0 && !(await readable(this.file))) throw new BerthError(LOCAL.FILE_UNREADABLE, { op: "read" });
      if (damaged(err) && !equal(await hasher.digest(this.#algorithm(), slice), sum)) throw new BerthError(LOCAL.FILE_CHANGED, { op });
      if (last) throw refused(op, err);
      // A refusal that closes the connection looks like the network.
      if (err instanceof S3Error && err.status === 0 && (attempt > 1 || url.expired())) url = null;
      await sleep(wait(retry, attempt, err instanceof S3Error ? err.after : 0), signal);
    }
  }

  /** @param {number} n @param {string} checksum */
  async #sign(n, checksum) {
    try {
      return await /** @type {Signer} */ (this.#signer).sign(n, checksum);
    } catch (err) {
      if (codeOf(err) === "PART_CONFLICT") throw new BerthError(LOCAL.FILE_CHANGED, { op: `part ${n}`, cause: err });
      if (["SESSION_CLOSED", "BUSY"].includes(codeOf(err))) throw VANISHED; // somebody else completes, or has completed
      throw err;
    }
  }

  // ---- the end

  /** Says that all is sent, and returns the session once it is completed or committed. */
  async #complete() {
    const { api } = this.#client;
    const signal = this.#life.signal;
    const id = this.#up().id;
    const lengths = this.#all().map((n) => this.#length(n));
    const sum = await whole(this.#algorithm(), this.#up().checksum.type ?? "full_object", this.#digests, lengths);
    /** @type {import("./wire.js").CompleteRequest} */
    const req = sum ? { checksum: sum } : {};
    let ask = true;
    for (let n = 1; ; n++) {
      /** @type {import("./wire.js").Upload} */
      let up;
      try {
        up = ask ? await api.complete(id, req, newKey(), signal) : await api.upload(id, signal);
      } catch (err) {
        if (!ask || !["SESSION_CLOSED", "BUSY", "NOT_READY", "IDEMPOTENCY_IN_PROGRESS"].includes(codeOf(err))) throw err;
        up = await api.upload(id, signal);
      }
      if (up.state === "committed" || up.state === "completed") return up;
      if (!["init", "uploading", "completing"].includes(up.state)) throw ended(up.state, up.reason);
      // The attempt of somebody else runs, or was given up: then ours counts.
      ask = up.state !== "completing";
      if (ask && n > MENDS) throw ended(up.state, up.reason);
      await sleep(pollWait(n), signal);
    }
  }

  /** Waits until the file is active. */
  async #checked() {
    this.#enter("checking");
    this.#leave(); // what others check may take its time: the next file's turn
    if (this.#up().state === "completed") return; // its commit is deferred
    const until = Date.now() + (this.#o.wait ?? 600_000);
    for (let n = 1; ; n++) {
      const f = this.#up().file;
      if (f) {
        this.record = f;
        if (f.state === "active") return;
        if (f.state === "blocked") throw new BerthError(LOCAL.BLOCKED, { op: "check", detail: f.reason?.message, details: { state: f.state } });
        if (f.state !== "preparing" && f.state !== "processing") {
          await this.#forget();
          throw new BerthError(f.reason?.code && f.state === "failed" ? f.reason.code : LOCAL.REFUSED, {
            op: "check", detail: f.reason?.message, details: { state: f.state },
          });
        }
        if (Date.now() > until) {
          await this.#forget(); // nothing more is to be sent
          throw new BerthError(LOCAL.NOT_ACTIVE, { op: "check", details: { state: f.state } });
        }
        await sleep(pollWait(n), this.#life.signal);
      }
      const { instant } = this.#up();
      this.upload = { ...(await this.#client.api.upload(this.#up().id, this.#life.signal)), instant };
    }
  }

  async #forget() {
    this.#saved = null;
    await this.#client.state.remove(this.#key);
  }

  /** Leaves nothing behind; what cannot be aborted ends by itself. */
  async #abandon() {
    const up = this.upload;
    const open = up?.id && !up.instant && ["init", "uploading"].includes(up.state);
    // Asked for first, with nothing waited for: once it is, it outlives the page.
    const aborted = open ? this.#client.api.abort(up.id).catch(() => {}) : null; // else its deadline does it
    await this.#forget();
    await aborted;
  }
}

/** @param {string} op @param {unknown} err */
function refused(op, err) {
  const e = err instanceof S3Error ? err : null;
  return new BerthError(e && e.status === 0 ? LOCAL.NETWORK : LOCAL.STORE_REFUSED, {
    op, status: e?.status, detail: e?.s3code ? `S3 answered ${e.s3code}` : "", cause: err,
  });
}

/** @param {string} state @param {import("./wire.js").Reason} [reason] */
function ended(state, reason) {
  const code = reason?.code || (state === "expired" ? "SESSION_EXPIRED" : "SESSION_CLOSED");
  return new BerthError(code, { op: "complete", detail: reason?.message, details: { state } });
}

/** Whether an open was refused for what it stated of the content. @param {unknown} err */
function refusesChecksum(err) {
  return err instanceof BerthError && err.code === "INVALID_REQUEST" &&
    (err.details.field === undefined || String(err.details.field).includes("checksum"));
}

/** Whether S3 will take no other bytes by this URL. @param {import("./wire.js").SignedPart} p @param {string} a @param {string} sum */
function pins(p, a, sum) {
  return Object.entries(p.headers).some(([k, v]) => k.toLowerCase() === `x-amz-checksum-${a}` && v === sum);
}
