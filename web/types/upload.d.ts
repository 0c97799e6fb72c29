export class Upload extends EventTarget {
    /**
     * @param {import("./index.js").Client} client
     * @param {File} file
     * @param {UploadOptions} o
     */
    constructor(client: import("./index.js").Client, file: File, o: UploadOptions);
    file: File;
    name: string;
    size: number;
    collection: string;
    /** The session, once it is open. @type {import("./wire.js").Upload | null} */
    upload: import("./wire.js").Upload | null;
    /** The file's record, once there is one. @type {FileRecord | null} */
    record: FileRecord | null;
    /** @type {BerthError | null} */
    error: BerthError | null;
    instant: boolean;
    resumed: boolean;
    /** Bytes that S3 held already. */
    held: number;
    /** What comes of it; a new one after retry(). @type {Promise<Result>} */
    done: Promise<Result>;
    /** @returns {State} */
    get state(): State;
    /** The browser says that there is no network, and this upload needs one. */
    get offline(): boolean;
    /** Bytes of the file that are at S3 or on their way. */
    get sent(): number;
    /** Bytes per second over the last seconds; 0 while it cannot be told. */
    get rate(): number;
    /** Seconds until the last byte has left; null while it cannot be told. */
    get eta(): number | null;
    /** Whether pause() does anything: what is being checked cannot be held back. */
    get pausable(): boolean;
    /** Stops sending. Parts under way are given up and sent again later. */
    pause(): void;
    resume(): void;
    /** Gives the upload up, also at the server. */
    cancel(): void;
    /** Goes on after a failure: with the same session if that still lives. */
    retry(): Promise<Result>;
    /** For the client: the network went or came back. */
    network(): void;
    #private;
}
export type Algorithm = import("./wire.js").Algorithm;
export type FileRecord = import("./wire.js").FileRecord;
/**
 * - waiting: others are first
 * - preparing: hashed, opened, or looked for what S3 holds of it
 * - sending
 * - paused
 * - checking: all bytes are at S3, which attests them; then the collection's own steps
 * - done: active, or with a deferred commit verified
 * - failed: `error` says why; retry() goes on
 * - cancelled
 */
export type State = "waiting" | "preparing" | "sending" | "paused" | "checking" | "done" | "failed" | "cancelled";
/**
 * - waiting: others are first
 * - preparing: hashed, opened, or looked for what S3 holds of it
 * - sending
 * - paused
 * - checking: all bytes are at S3, which attests them; then the collection's own steps
 * - done: active, or with a deferred commit verified
 * - failed: `error` says why; retry() goes on
 * - cancelled
 */
export type UploadOptions = {
    /**
     * "default" if absent
     */
    collection?: string | undefined;
    /**
     * the file's own if absent
     */
    name?: string | undefined;
    /**
     * the file's own if absent
     */
    contentType?: string | undefined;
    /**
     * a JSON object
     */
    metadata?: unknown;
    /**
     * the collection's if absent
     */
    commit?: "auto" | "deferred" | undefined;
    /**
     * go on with an open upload of the same content, whoever began it
     */
    continue?: boolean | undefined;
    /**
     * hash the whole file before it is opened, so that one that is there already need not be sent; files up to 16 MiB always are
     */
    declare?: boolean | undefined;
    /**
     * the collection's if absent
     */
    algorithm?: import("./wire.js").Algorithm | undefined;
    /**
     * the file's FileSystemFileHandle: a later page can go on by itself
     */
    handle?: any;
    /**
     * remember the upload for a later page; true if absent
     */
    keep?: boolean | undefined;
    /**
     * aborting it is cancel()
     */
    signal?: AbortSignal | undefined;
    /**
     * milliseconds from the last byte until active; ten minutes if absent
     */
    wait?: number | undefined;
};
/**
 * - waiting: others are first
 * - preparing: hashed, opened, or looked for what S3 holds of it
 * - sending
 * - paused
 * - checking: all bytes are at S3, which attests them; then the collection's own steps
 * - done: active, or with a deferred commit verified
 * - failed: `error` says why; retry() goes on
 * - cancelled
 */
export type Result = {
    upload: import("./wire.js").Upload;
    /**
     * null if the commit is deferred
     */
    file: FileRecord | null;
    /**
     * the server had the file: nothing was sent
     */
    instant: boolean;
    /**
     * an earlier session was continued
     */
    resumed: boolean;
    /**
     * bytes sent by this page, those sent again included
     */
    sent: number;
    /**
     * bytes that S3 held already
     */
    held: number;
};
import { BerthError } from "./errors.js";
