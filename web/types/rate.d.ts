/**
 * Seconds that are left, null if that cannot be told.
 *
 * @param {number} rest bytes @param {number} rate bytes per second
 */
export function eta(rest: number, rate: number): number | null;
export class Rate {
    /** @type {[number, number][]} */
    samples: [number, number][];
    /** @param {number} now milliseconds @param {number} total bytes that have left so far */
    add(now: number, total: number): void;
    /** After a pause the time that passed says nothing. */
    reset(): void;
    /** @param {number} now @returns {number} 0 while it cannot be told */
    perSecond(now: number): number;
}
