/**
 * Milliseconds before attempt n+1, n from 1: full jitter, that is uniform in
 * [0, ceiling], so that clients which failed together do not come back together. What
 * the server asks for is the least.
 *
 * @param {RetryPolicy} p
 * @param {number} n
 * @param {number} [after]  milliseconds
 */
export function wait(p: RetryPolicy, n: number, after?: number): number;
/** Milliseconds between two looks at what the server does: 50, then more, up to 2 s. @param {number} n */
export function pollWait(n: number): number;
/**
 * Whether a status says "later it may work". 501 and 505 say never; what is above is
 * made up by proxies.
 *
 * @param {number} status
 */
export function passing(status: number): boolean;
/**
 * Milliseconds that a Retry-After asks for; 0 if it does not.
 *
 * @param {string | null} value
 * @param {number} now
 */
export function retryAfter(value: string | null, now: number): number;
/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<void>;
/** Whether the browser knows that there is no network. Elsewhere: no. */
export function offline(): boolean;
/**
 * Waits for a network. What a browser believes of it is a hint, so it is not believed
 * for longer than ten seconds at a time.
 *
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function online(signal?: AbortSignal): Promise<void>;
/** How often and how soon a request is sent again; and waiting in general. */
/**
 * @typedef {object} RetryPolicy
 * @property {number} attempts  in all, the first included
 * @property {number} base  milliseconds; ceiling of the first wait, doubles from there
 * @property {number} cap  milliseconds; ceiling of any wait that the server did not ask for
 */
/** Lasts about half a minute; time without any network does not count. @type {RetryPolicy} */
export const DEFAULT_RETRY: RetryPolicy;
/** So many at a time, first come first served. */
export class Slots {
    /** @param {number} n */
    constructor(n: number);
    free: number;
    /** @type {(() => void)[]} */
    queue: (() => void)[];
    /**
     * Waits for a slot and returns what gives it back; giving back twice is once.
     *
     * @param {AbortSignal} [signal]
     * @returns {Promise<() => void>}
     */
    take(signal?: AbortSignal): Promise<() => void>;
    #private;
}
export type RetryPolicy = {
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
