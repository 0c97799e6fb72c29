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
    /** @param {ClientOptions} o */
    constructor(o: ClientOptions);
    owner: string;
    parallel: number;
    retry: {
        /**
         * in all, the first included
         */
        attempts: number;
        /**
         * milliseconds; ceiling of the first wait, doubles from there
         */
        base: number;
        /**
         * milliseconds; ceiling of any wait that the server did not ask for
         */
        cap: number;
    };
    api: Api;
    put: import("./s3.js").Put;
    slots: Slots;
    places: Slots;
    hasher: Hasher;
    state: StateStore;
    /** Those that were begun here, until they are dropped. @type {Set<Upload>} */
    uploads: Set<Upload>;
    /**
     * Begins to send a file, or goes on with it where an earlier page was closed.
     *
     * @param {File} file
     * @param {UploadOptions} [options]
     */
    upload(file: File, options?: UploadOptions): Upload;
    /** Takes an upload that has ended out of the totals. @param {Upload} u */
    drop(u: Upload): void;
    /** @returns {Totals} */
    totals(): Totals;
    /** What earlier pages left unfinished at this server. @returns {Promise<Saved[]>} */
    pending(): Promise<Saved[]>;
    /**
     * Goes on with what an earlier page left, if it has the file's handle and the user
     * lets us read it: call it from a click. Without a handle, give the file to upload().
     *
     * @param {Saved} saved
     * @param {UploadOptions} [options]
     * @returns {Promise<Upload | null>} null: the file must be chosen again
     */
    reopen(saved: Saved, options?: UploadOptions): Promise<Upload | null>;
    /** Gives up what an earlier page left, also at the server. @param {Saved} saved */
    discard(saved: Saved): Promise<void>;
    /** Ends the workers. Uploads should have ended before. */
    close(): void;
    /** A key that no other upload here has: two files may look the same. @param {string} key */
    claim(key: string): string;
    /** @param {string} key */
    release(key: string): void;
    /** What is known of a collection from the server's answers. @param {string} collection */
    habits(collection: string): {
        algorithm?: import("./wire.js").Algorithm;
        single: number;
    };
    /** @param {import("./wire.js").Upload} up @param {string} [asked] */
    learn(up: import("./wire.js").Upload, asked?: string): void;
    #private;
}
export type UploadOptions = import("./upload.js").UploadOptions;
export type Result = import("./upload.js").Result;
export type State = import("./upload.js").State;
export type Saved = import("./state.js").Saved;
export type FileRecord = import("./wire.js").FileRecord;
export type ContentURL = import("./wire.js").ContentURL;
export type ClientOptions = {
    /**
     * of the server; the page's own origin if absent
     */
    url?: string | undefined;
    token: import("./api.js").TokenSource;
    /**
     * whose uploads are remembered together on this machine, such as the user's id; "" if absent
     */
    owner?: string | undefined;
    /**
     * parts under way at once, over all files; 4 if absent. Memory: so many parts, while they are hashed
     */
    parallel?: number | undefined;
    /**
     * files under way at once; 4 if absent
     */
    files?: number | undefined;
    retry?: Partial<import("./retry.js").RetryPolicy> | undefined;
    /**
     * for calls to the server
     */
    fetch?: typeof fetch | undefined;
    /**
     * for parts to S3
     */
    put?: import("./s3.js").Put | undefined;
};
export type Totals = {
    files: number;
    /**
     * files
     */
    done: number;
    /**
     * files
     */
    failed: number;
    /**
     * bytes
     */
    size: number;
    /**
     * bytes
     */
    sent: number;
    /**
     * bytes per second
     */
    rate: number;
    /**
     * seconds; null while it cannot be told
     */
    eta: number | null;
};
import { Api } from "./api.js";
import { Slots } from "./retry.js";
import { Hasher } from "./hash.js";
import { StateStore } from "./state.js";
import { Upload } from "./upload.js";
export { BerthError, LOCAL, codeOf, sentence } from "./errors.js";
