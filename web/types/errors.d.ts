/** @param {string} code @returns {string} */
export function sentence(code: string): string;
/** @param {unknown} err @returns {string} the code of a BerthError, "" of any other */
export function codeOf(err: unknown): string;
/** @param {unknown} [cause] */
export function cancelled(cause?: unknown): BerthError;
/**
 * The error of an answer that is none of 2xx; takes whatever a proxy between may say.
 *
 * @param {string} op
 * @param {number} status
 * @param {string} contentType
 * @param {string} text
 * @param {string} requestId
 */
export function problem(op: string, status: number, contentType: string, text: string, requestId: string): BerthError;
/**
 * The parts that a problem names, as numbers or as ranges, within 1..count, sorted.
 *
 * @param {unknown} list
 * @param {number} count
 * @returns {number[]}
 */
export function partNumbers(list: unknown, count: number): number[];
/**
 * What went wrong, as a code for programs and a sentence for people. Codes in capitals
 * are the server's public ones; those that only a client can find are listed in LOCAL.
 */
/** Codes that the client itself finds. */
export const LOCAL: Readonly<{
    NETWORK: "NETWORK";
    STORE_REFUSED: "STORE_REFUSED";
    FILE_UNREADABLE: "FILE_UNREADABLE";
    FILE_CHANGED: "FILE_CHANGED";
    BLOCKED: "BLOCKED";
    REFUSED: "REFUSED";
    NOT_ACTIVE: "NOT_ACTIVE";
    BAD_ANSWER: "BAD_ANSWER";
    CANCELLED: "CANCELLED";
}>;
/**
 * Every error that this package throws. `message` is the sentence for people, `detail`
 * what the server said of this case. Neither holds a URL or a token.
 */
export class BerthError extends Error {
    /**
     * @param {string} code
     * @param {object} [more]
     * @param {string} [more.op]  what was being done: "open", "part 3"
     * @param {number} [more.status]  HTTP status, of the server or of S3
     * @param {string} [more.detail]
     * @param {string} [more.requestId]
     * @param {Record<string, any>} [more.details]  members of the problem beside its own
     * @param {unknown} [more.cause]
     */
    constructor(code: string, more?: {
        op?: string | undefined;
        status?: number | undefined;
        detail?: string | undefined;
        requestId?: string | undefined;
        details?: Record<string, any> | undefined;
        cause?: unknown;
    });
    code: string;
    op: string;
    status: number;
    detail: string;
    requestId: string;
    /** @type {Record<string, any>} */
    details: Record<string, any>;
}
