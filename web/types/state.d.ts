/**
 * How a file is known again after a reload, when only the user can choose it anew.
 *
 * @param {string} server @param {string} owner @param {string} collection @param {File} file
 */
export function fingerprint(server: string, owner: string, collection: string, file: File): string;
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
export const OPEN_KEY_LIFE: 3600000;
export class StateStore {
    /** @type {Map<string, Saved>} */
    memory: Map<string, Saved>;
    /** @type {Promise<IDBDatabase | null> | undefined} */
    db: Promise<IDBDatabase | null> | undefined;
    /** @param {string} key @returns {Promise<Saved | undefined>} */
    get(key: string): Promise<Saved | undefined>;
    /** @param {Saved} saved */
    put(saved: Saved): Promise<void>;
    /** @param {string} key */
    remove(key: string): Promise<void>;
    /** @returns {Promise<Saved[]>} newest first */
    all(): Promise<Saved[]>;
    #private;
}
export type Saved = {
    key: string;
    server: string;
    /**
     * whose it is, as the page told the client
     */
    owner: string;
    collection: string;
    name: string;
    /**
     * within a chosen folder, "" outside of one
     */
    path: string;
    size: number;
    lastModified: number;
    /**
     * Idempotency-Key of the open, stored before it is sent
     */
    openKey: string;
    uploadId?: string | undefined;
    /**
     * milliseconds
     */
    begun: number;
    /**
     * a FileSystemFileHandle, where there is one
     */
    handle?: any;
};
