/**
 * What went wrong, as a code for programs and a sentence for people. Codes in capitals
 * are the server's public ones; those that only a client can find are listed in LOCAL.
 */

/** Codes that the client itself finds. */
export const LOCAL = Object.freeze({
  NETWORK: "NETWORK", // no answer, however often it was tried
  STORE_REFUSED: "STORE_REFUSED", // S3 refused a part for good
  FILE_UNREADABLE: "FILE_UNREADABLE", // moved, deleted or forbidden since it was chosen
  FILE_CHANGED: "FILE_CHANGED", // not the bytes any more whose upload was begun
  BLOCKED: "BLOCKED", // a check blocked the file
  REFUSED: "REFUSED", // a check, or somebody, removed it
  NOT_ACTIVE: "NOT_ACTIVE", // the bytes arrived; the file is not active in time
  BAD_ANSWER: "BAD_ANSWER", // an answer that makes no sense
  CANCELLED: "CANCELLED",
});

/** @type {Record<string, string>} */
const SENTENCES = {
  INVALID_REQUEST: "The server does not accept this file as it was described.",
  METADATA_INVALID: "The details given with this file are not valid.",
  UNAUTHENTICATED: "You are not signed in, or your access has run out.",
  FORBIDDEN: "Your access does not allow this.",
  NOT_FOUND: "It is not there any more.",
  NOT_READY: "The file cannot be read yet.",
  SESSION_CLOSED: "This upload has ended already.",
  SESSION_EXPIRED: "This upload was not finished in time. Please send the file again.",
  SESSION_NOT_COMPLETED: "The upload is not finished yet.",
  PART_CONFLICT: "Another version of this file is being uploaded already.",
  PART_OUT_OF_RANGE: "The server knows no such piece of this file.",
  MISSING_PARTS: "Pieces of the file did not arrive.",
  PART_CORRUPT: "Pieces of the file arrived damaged.",
  SIZE_MISMATCH: "The file arrived with another size.",
  CHECKSUM_MISMATCH: "The file that arrived is not the one that was sent.",
  DIGEST_MISMATCH: "The file that arrived is not the one that was sent.",
  DUPLICATE_FILE: "This file has been uploaded already.",
  QUOTA_EXCEEDED: "There is no room for this file: the limit is reached.",
  TOO_LARGE: "This file is larger than is allowed.",
  TYPE_NOT_ALLOWED: "Files of this type are not accepted here.",
  BLOB_CORRUPT: "The stored file is damaged.",
  RATE_LIMITED: "The server is busy. Please try again in a moment.",
  STORE_UNAVAILABLE: "The storage cannot be reached at the moment. Please try again.",
  INTERNAL: "Something went wrong on the server.",
  NETWORK: "The connection was lost. Please try again.",
  STORE_REFUSED: "The storage refused the file.",
  FILE_UNREADABLE: "The file cannot be read any more. Was it moved, renamed or changed?",
  FILE_CHANGED: "The file has changed since its upload was begun. Please send it again.",
  BLOCKED: "The file was checked and is held back.",
  REFUSED: "The file was checked and not accepted.",
  NOT_ACTIVE: "The file has arrived and is still being checked.",
  BAD_ANSWER: "The server gave an answer that makes no sense.",
  CANCELLED: "The upload was cancelled.",
};

/** @param {string} code @returns {string} */
export function sentence(code) {
  return SENTENCES[code] ?? "The upload did not succeed.";
}

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
  constructor(code, more = {}) {
    super(sentence(code), more.cause === undefined ? undefined : { cause: more.cause });
    this.name = "BerthError";
    this.code = code;
    this.op = more.op ?? "";
    this.status = more.status ?? 0;
    this.detail = more.detail ?? "";
    this.requestId = more.requestId ?? "";
    /** @type {Record<string, any>} */
    this.details = more.details ?? {};
  }
}

/** @param {unknown} err @returns {string} the code of a BerthError, "" of any other */
export function codeOf(err) {
  return err instanceof BerthError ? err.code : "";
}

/** @param {unknown} [cause] */
export function cancelled(cause) {
  return new BerthError(LOCAL.CANCELLED, { cause });
}

const OWN = ["type", "title", "status", "detail", "code", "request_id", "instance"];

/**
 * The error of an answer that is none of 2xx; takes whatever a proxy between may say.
 *
 * @param {string} op
 * @param {number} status
 * @param {string} contentType
 * @param {string} text
 * @param {string} requestId
 */
export function problem(op, status, contentType, text, requestId) {
  /** @type {any} */
  let p = null;
  if (/^application\/(problem\+)?json\b/i.test(contentType)) {
    try {
      p = JSON.parse(text);
    } catch {
      // as if it had said nothing
    }
  }
  if (p === null || typeof p !== "object" || typeof p.code !== "string") {
    return new BerthError(status === 401 ? "UNAUTHENTICATED" : status === 413 ? "TOO_LARGE" : "INTERNAL", { op, status, requestId });
  }
  const details = Object.fromEntries(Object.entries(p).filter(([k]) => !OWN.includes(k)));
  return new BerthError(p.code, {
    op, status, details,
    detail: String(p.detail ?? p.title ?? ""),
    requestId: String(p.request_id ?? requestId),
  });
}

/**
 * The parts that a problem names, as numbers or as ranges, within 1..count, sorted.
 *
 * @param {unknown} list
 * @param {number} count
 * @returns {number[]}
 */
export function partNumbers(list, count) {
  /** @type {Set<number>} */
  const out = new Set();
  for (const item of Array.isArray(list) ? list : []) {
    const [from, to] = Array.isArray(item) ? item : [item, item];
    if (!Number.isInteger(from) || !Number.isInteger(to)) continue;
    for (let n = Math.max(from, 1); n <= Math.min(to, count); n++) out.add(n);
  }
  return [...out].sort((a, b) => a - b);
}
