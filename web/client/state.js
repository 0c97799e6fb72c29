/**
 * What a later page needs to go on with an upload, in IndexedDB. It holds no secret:
 * without a token an upload id opens nothing. Which parts have arrived is not in it: S3
 * knows that.
 */

/**
 * @typedef {object} Saved
 * @property {string} key
 * @property {string} server
 * @property {string} owner  whose it is, as the page told the client
 * @property {string} collection
 * @property {string} name
 * @property {string} path  within a chosen folder, "" outside of one
 * @property {number} size
 * @property {number} lastModified
 * @property {string} openKey  Idempotency-Key of the open, stored before it is sent
 * @property {string} [uploadId]
 * @property {number} begun  milliseconds
 * @property {any} [handle]  a FileSystemFileHandle, where there is one
 */

/** For how long an open that may or may not have arrived is repeated under its own key. */
export const OPEN_KEY_LIFE = 3_600_000;

/**
 * How a file is known again after a reload, when only the user can choose it anew.
 *
 * @param {string} server @param {string} owner @param {string} collection @param {File} file
 */
export function fingerprint(server, owner, collection, file) {
  return JSON.stringify([server, owner, collection, file.webkitRelativePath || file.name, file.size, file.lastModified]);
}

export class StateStore {
  constructor() {
    /** @type {Map<string, Saved>} */
    this.memory = new Map(); // where there is no IndexedDB, as in some private windows
    /** @type {Promise<IDBDatabase | null> | undefined} */
    this.db = undefined;
  }

  #open() {
    this.db ??= new Promise((resolve) => {
      if (typeof indexedDB === "undefined") return resolve(null);
      try {
        const r = indexedDB.open("berth", 1);
        r.onupgradeneeded = () => r.result.createObjectStore("uploads", { keyPath: "key" });
        r.onsuccess = () => resolve(r.result);
        r.onerror = r.onblocked = () => resolve(null);
      } catch {
        resolve(null);
      }
    });
    return this.db;
  }

  /**
   * @template T
   * @param {IDBTransactionMode} mode
   * @param {(s: IDBObjectStore) => IDBRequest<T>} ask
   * @returns {Promise<{ value: T } | null>} null: there is no database, or it failed
   */
  async #run(mode, ask) {
    const db = await this.#open();
    if (!db) return null;
    return new Promise((resolve) => {
      try {
        const tx = db.transaction("uploads", mode);
        const r = ask(tx.objectStore("uploads"));
        tx.oncomplete = () => resolve({ value: r.result });
        tx.onerror = tx.onabort = () => resolve(null);
      } catch {
        resolve(null);
      }
    });
  }

  /** @param {string} key @returns {Promise<Saved | undefined>} */
  async get(key) {
    const r = await this.#run("readonly", (s) => s.get(key));
    return r ? r.value : this.memory.get(key);
  }

  /** @param {Saved} saved */
  async put(saved) {
    if (await this.#run("readwrite", (s) => s.put(saved))) return;
    const { handle: _, ...plain } = saved; // a handle that cannot be stored must not cost the rest
    if (await this.#run("readwrite", (s) => s.put(plain))) return;
    this.memory.set(saved.key, saved);
  }

  /** @param {string} key */
  async remove(key) {
    this.memory.delete(key);
    await this.#run("readwrite", (s) => s.delete(key));
  }

  /** @returns {Promise<Saved[]>} newest first */
  async all() {
    const r = await this.#run("readonly", (s) => s.getAll());
    const list = r ? /** @type {Saved[]} */ (r.value) : [...this.memory.values()];
    return list.sort((a, b) => b.begun - a.begun);
  }
}
