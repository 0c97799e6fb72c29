/** Bytes per second over the last seconds, from the times at which bytes left. */
const WINDOW = 6000; // milliseconds

export class Rate {
  constructor() {
    /** @type {[number, number][]} */
    this.samples = []; // [when, bytes in all], oldest first
  }

  /** @param {number} now milliseconds @param {number} total bytes that have left so far */
  add(now, total) {
    const last = this.samples.at(-1);
    if (last && total < last[1]) {
      // Bytes must leave again: what was counted stays counted once.
      const lost = last[1] - total;
      for (const s of this.samples) s[1] -= lost;
    }
    if (last && now - last[0] < 100) last[1] = total;
    else this.samples.push([now, total]);
    while (this.samples.length > 2 && now - this.samples[0][0] > WINDOW) this.samples.shift();
  }

  /** After a pause the time that passed says nothing. */
  reset() {
    this.samples = [];
  }

  /** @param {number} now @returns {number} 0 while it cannot be told */
  perSecond(now) {
    const first = this.samples[0];
    const last = this.samples.at(-1);
    if (!first || !last || now - first[0] < 300) return 0;
    return (Math.max(0, last[1] - first[1]) * 1000) / (now - first[0]);
  }
}

/**
 * Seconds that are left, null if that cannot be told.
 *
 * @param {number} rest bytes @param {number} rate bytes per second
 */
export function eta(rest, rate) {
  return rest <= 0 ? 0 : rate > 0 ? rest / rate : null;
}
