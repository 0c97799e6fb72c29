export function put(part: import("./wire.js").SignedPart, body: Blob, moved: (sent: number) => void, signal: AbortSignal): Promise<void>;
/** S3's own code in an error document, short and plain or not at all. @param {string} xml */
export function errorCode(xml: string): string;
/**
 * What a failed part calls for.
 * - again: the same bytes once more, after a while
 * - offline: wait for the network, then again
 * - resign: the URL is refused: a new one
 * - there: the object is there already (412)
 * - vanished: S3 knows no such session: it ended, or was completed (404)
 * - fatal
 *
 * @param {unknown} err
 * @returns {"again" | "offline" | "resign" | "there" | "vanished" | "fatal"}
 */
export function remedy(err: unknown): "again" | "offline" | "resign" | "there" | "vanished" | "fatal";
/** Whether S3 got other bytes than were signed for. @param {unknown} err */
export function damaged(err: unknown): boolean;
/** A refusal of S3, or, with status 0, no answer at all. It holds no URL. */
export class S3Error extends Error {
    /** @param {number} status @param {string} s3code @param {number} [after] milliseconds */
    constructor(status: number, s3code: string, after?: number);
    status: number;
    s3code: string;
    after: number;
}
/**
 * resolves when S3 has it, rejects with an S3Error or the signal's reason
 */
export type Put = (part: import("./wire.js").SignedPart, body: Blob, moved: (sent: number) => void, signal: AbortSignal) => Promise<void>;
