/**
 * Whether the file can still be read; browsers refuse one that was changed on the disk
 * since it was chosen.
 *
 * @param {Blob} blob
 */
export function readable(blob: Blob): Promise<boolean>;
/** @typedef {import("./wire.js").Algorithm} Algorithm */
/** @typedef {{ resolve: (sum: Uint8Array) => void, reject: (err: unknown) => void, again: () => void }} Waiter */
export class Hasher {
    /** @param {number} n  how many workers at most */
    constructor(n: number);
    most: number;
    /** @type {{ worker: Worker, waiting: Map<number, Waiter> }[]} */
    pool: {
        worker: Worker;
        waiting: Map<number, Waiter>;
    }[];
    next: number;
    usable: boolean;
    /**
     * The digest of a slice. Memory: the slice, while it is hashed.
     *
     * @param {Algorithm} algorithm
     * @param {Blob} blob
     * @returns {Promise<Uint8Array>}
     */
    digest(algorithm: Algorithm, blob: Blob): Promise<Uint8Array>;
    close(): void;
    #private;
}
export type Algorithm = import("./wire.js").Algorithm;
export type Waiter = {
    resolve: (sum: Uint8Array) => void;
    reject: (err: unknown) => void;
    again: () => void;
};
