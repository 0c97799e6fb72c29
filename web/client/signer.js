/**
 * Has parts signed for just before they are sent. Parts that become ready while a
 * request is on its way share the next one.
 */
import { BerthError, LOCAL } from "./errors.js";

/** Bounds one request to sign. */
const BATCH = 500;

/** A part's request, and when by our own clock it stops being good. */
export class SignedURL {
  /**
   * @param {import("./wire.js").SignedPart} part
   * @param {number} asked
   * @param {number} until  both in milliseconds of our own clock
   */
  constructor(part, asked, until) {
    this.part = part;
    this.used = false;
    this.last = until - Math.min(5000, (until - asked) / 4);
  }

  /**
   * Whether it is worth sending with. A new one always is, once: clocks that disagree
   * must not keep us asking for ever.
   */
  fresh() {
    return !this.used || Date.now() < this.last;
  }

  /** Whether S3 may well call it expired. */
  expired() {
    return Date.now() >= this.last;
  }
}

export class Signer {
  /**
   * @param {import("./api.js").Api} api
   * @param {string} upload
   * @param {AbortSignal} signal  of the whole transfer
   */
  constructor(api, upload, signal) {
    this.api = api;
    this.upload = upload;
    this.signal = signal;
    /** @type {{ part: import("./wire.js").PartToSign, resolve: (url: SignedURL) => void, reject: (err: unknown) => void }[]} */
    this.queue = [];
    this.busy = false;
  }

  /**
   * @param {number} number
   * @param {string} checksum  base64
   * @returns {Promise<SignedURL>}
   */
  sign(number, checksum) {
    return new Promise((resolve, reject) => {
      this.queue.push({ part: { number, checksum }, resolve, reject });
      if (!this.busy) this.#run();
    });
  }

  async #run() {
    this.busy = true;
    while (this.queue.length > 0) {
      const batch = this.queue.splice(0, BATCH);
      try {
        const asked = Date.now();
        const res = await this.api.sign(this.upload, { parts: batch.map((b) => b.part) }, this.signal);
        const until = Date.parse(res.expires_at) - this.api.ahead;
        const byNumber = new Map(res.parts.map((p) => [p.number, p]));
        for (const b of batch) {
          const part = byNumber.get(b.part.number);
          if (part) b.resolve(new SignedURL(part, asked, until));
          else b.reject(new BerthError(LOCAL.BAD_ANSWER, { op: "sign" }));
        }
      } catch (err) {
        for (const b of batch) b.reject(err);
      }
    }
    this.busy = false;
  }
}
