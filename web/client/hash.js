/** Hashes slices of files in workers; in this thread where there are none. */
import { digest } from "./digest.js";
import { BerthError, LOCAL } from "./errors.js";

/** @typedef {import("./wire.js").Algorithm} Algorithm */
/** @typedef {{ resolve: (sum: Uint8Array) => void, reject: (err: unknown) => void, again: () => void }} Waiter */

export class Hasher {
  /** @param {number} n  how many workers at most */
  constructor(n) {
    this.most = n;
    /** @type {{ worker: Worker, waiting: Map<number, Waiter> }[]} */
    this.pool = [];
    this.next = 0;
    this.usable = typeof Worker !== "undefined";
  }

  /**
   * The digest of a slice. Memory: the slice, while it is hashed.
   *
   * @param {Algorithm} algorithm
   * @param {Blob} blob
   * @returns {Promise<Uint8Array>}
   */
  async digest(algorithm, blob) {
    const one = this.#pick();
    if (!one) return this.#here(algorithm, blob);
    const id = this.next++;
    return new Promise((resolve, reject) => {
      const again = () => this.#here(algorithm, blob).then(resolve, reject);
      one.waiting.set(id, { resolve, reject, again });
      one.worker.postMessage({ id, algorithm, blob });
    });
  }

  /** @param {Algorithm} algorithm @param {Blob} blob */
  async #here(algorithm, blob) {
    let bytes;
    try {
      bytes = await blob.arrayBuffer();
    } catch (err) {
      throw unreadable(err);
    }
    return digest(algorithm, bytes);
  }

  #pick() {
    if (!this.usable) return null;
    const idle = this.pool.find((p) => p.waiting.size === 0);
    if (idle) return idle;
    if (this.pool.length < this.most) return this.#start();
    return this.pool.reduce((a, b) => (b.waiting.size < a.waiting.size ? b : a));
  }

  #start() {
    let worker;
    try {
      worker = new Worker(new URL("./hashworker.js", import.meta.url), { type: "module", name: "berth-hash" });
    } catch {
      this.usable = false; // another origin's script, or a policy against workers
      return null;
    }
    /** @type {{ worker: Worker, waiting: Map<number, Waiter> }} */
    const one = { worker, waiting: new Map() };
    worker.addEventListener("message", (m) => {
      const w = one.waiting.get(m.data.id);
      one.waiting.delete(m.data.id);
      if (m.data.sum) w?.resolve(m.data.sum);
      else w?.reject(unreadable(m.data.failed));
    });
    worker.addEventListener("error", () => {
      // It did not load, or died: what it owed is done here.
      this.usable = false;
      for (const w of one.waiting.values()) w.again();
      one.waiting.clear();
    });
    this.pool.push(one);
    return one;
  }

  close() {
    for (const p of this.pool) p.worker.terminate();
    this.pool = [];
  }
}

/** @param {unknown} cause */
function unreadable(cause) {
  return new BerthError(LOCAL.FILE_UNREADABLE, { op: "read", cause });
}

/**
 * Whether the file can still be read; browsers refuse one that was changed on the disk
 * since it was chosen.
 *
 * @param {Blob} blob
 */
export async function readable(blob) {
  try {
    await blob.slice(0, 1).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}
