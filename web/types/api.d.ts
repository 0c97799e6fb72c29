export function newKey(): string;
export class Api {
    /**
     * @param {object} o
     * @param {string} o.url
     * @param {TokenSource} o.token
     * @param {import("./retry.js").RetryPolicy} o.retry
     * @param {typeof fetch} [o.fetch]
     */
    constructor(o: {
        url: string;
        token: TokenSource;
        retry: import("./retry.js").RetryPolicy;
        fetch?: typeof fetch | undefined;
    });
    url: string;
    token: TokenSource;
    retry: import("./retry.js").RetryPolicy;
    fetch: typeof fetch;
    /** Milliseconds that the server's clock is ahead of ours, as far as it lets us see. */
    ahead: number;
    /** @param {import("./wire.js").OpenRequest} body @param {string} key @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
    open(body: import("./wire.js").OpenRequest, key: string, signal?: AbortSignal): Promise<import("./wire.js").Upload>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
    upload(id: string, signal?: AbortSignal): Promise<import("./wire.js").Upload>;
    /** @param {string} id @param {import("./wire.js").SignRequest} body @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").SignResponse>} */
    sign(id: string, body: import("./wire.js").SignRequest, signal?: AbortSignal): Promise<import("./wire.js").SignResponse>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").PartsResponse>} */
    parts(id: string, signal?: AbortSignal): Promise<import("./wire.js").PartsResponse>;
    /** @param {string} id @param {import("./wire.js").CompleteRequest} body @param {string} key @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
    complete(id: string, body: import("./wire.js").CompleteRequest, key: string, signal?: AbortSignal): Promise<import("./wire.js").Upload>;
    /** @param {string} id @param {import("./wire.js").CommitRequest} body @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
    commit(id: string, body: import("./wire.js").CommitRequest, signal?: AbortSignal): Promise<import("./wire.js").FileRecord>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").Upload>} */
    abort(id: string, signal?: AbortSignal): Promise<import("./wire.js").Upload>;
    /** @param {{ collection?: string, state?: string, cursor?: string, limit?: number }} [q] @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileList>} */
    files(q?: {
        collection?: string;
        state?: string;
        cursor?: string;
        limit?: number;
    }, signal?: AbortSignal): Promise<import("./wire.js").FileList>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
    file(id: string, signal?: AbortSignal): Promise<import("./wire.js").FileRecord>;
    /** A short-lived address of the content. @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").ContentURL>} */
    contentURL(id: string, signal?: AbortSignal): Promise<import("./wire.js").ContentURL>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").History>} */
    history(id: string, signal?: AbortSignal): Promise<import("./wire.js").History>;
    /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<import("./wire.js").FileRecord>} */
    remove(id: string, signal?: AbortSignal): Promise<import("./wire.js").FileRecord>;
    /**
     * @param {Call} c
     * @returns {Promise<any>}
     */
    call(c: Call): Promise<any>;
    #private;
}
/**
 * A bearer token, or what gets one: asked again with refresh after the server has
 * refused the last.
 */
export type TokenSource = string | ((ask: {
    refresh: boolean;
}) => string | Promise<string>);
/**
 * A bearer token, or what gets one: asked again with refresh after the server has
 * refused the last.
 */
export type Call = {
    /**
     * for errors
     */
    op: string;
    method: string;
    path: string;
    body?: unknown;
    /**
     * Idempotency-Key
     */
    key?: string | undefined;
    signal?: AbortSignal | undefined;
    /**
     * milliseconds
     */
    timeout?: number | undefined;
    /**
     * the policy's if absent
     */
    attempts?: number | undefined;
    /**
     * the request outlives the page
     */
    keepalive?: boolean | undefined;
};
