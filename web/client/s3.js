/**
 * Sends one part to S3, exactly as it was signed for.
 *
 * XMLHttpRequest, not fetch: only it tells how much of a body has left, and no browser
 * streams a request body of known length without HTTP/2 and its own set of limits. The
 * body is the slice of the file itself, which the browser reads as it sends: a part is
 * in the page's memory while it is hashed, and not while it travels. fetch is used where
 * there is no XMLHttpRequest, that is outside of browsers.
 */
import { offline, passing, retryAfter } from "./retry.js";

/** Milliseconds that a request may go without a byte moving. */
const STALL = 90_000;

/** A refusal of S3, or, with status 0, no answer at all. It holds no URL. */
export class S3Error extends Error {
  /** @param {number} status @param {string} s3code @param {number} [after] milliseconds */
  constructor(status, s3code, after = 0) {
    super(status === 0 ? "S3 did not answer" : `S3 answered ${status} ${s3code}`.trim());
    this.name = "S3Error";
    this.status = status;
    this.s3code = s3code;
    this.after = after;
  }
}

/**
 * @callback Put  resolves when S3 has it, rejects with an S3Error or the signal's reason
 * @param {import("./wire.js").SignedPart} part
 * @param {Blob} body
 * @param {(sent: number) => void} moved  told of the bytes that have left so far
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */

/** @type {Put} */
export function put(part, body, moved, signal) {
  return typeof XMLHttpRequest === "undefined" ? putByFetch(part, body, moved, signal) : putByXHR(part, body, moved, signal);
}

/** @param {Record<string, string>} headers what was signed, without what a browser sets by itself */
function settable(headers) {
  return Object.entries(headers).filter(([k]) => !/^(host|content-length)$/i.test(k));
}

/** @type {Put} */
function putByXHR(part, body, moved, signal) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const x = new XMLHttpRequest();
    /** @type {ReturnType<typeof setTimeout>} */
    let stall;
    const alive = () => {
      clearTimeout(stall);
      stall = setTimeout(() => {
        end();
        x.abort();
        reject(new S3Error(0, "stalled"));
      }, STALL);
    };
    const stop = () => {
      end();
      x.abort();
      reject(signal.reason);
    };
    const end = () => {
      clearTimeout(stall);
      signal.removeEventListener("abort", stop);
    };
    signal.addEventListener("abort", stop, { once: true });
    x.upload.onprogress = (e) => {
      alive();
      moved(e.loaded);
    };
    x.onload = () => {
      end();
      if (x.status === 200) return resolve();
      reject(new S3Error(x.status, errorCode(x.responseText), retryAfter(header(x, "retry-after"), Date.now())));
    };
    x.onerror = x.ontimeout = () => {
      end();
      reject(new S3Error(0, ""));
    };
    try {
      x.open(part.method, part.url, true);
      for (const [k, v] of settable(part.headers)) x.setRequestHeader(k, v);
      alive();
      x.send(body);
    } catch {
      end();
      reject(new S3Error(0, ""));
    }
  });
}

/**
 * A header, if it may be read: asking for one by its name that the store does not expose
 * is an error on the console.
 *
 * @param {XMLHttpRequest} x @param {string} name in lower case
 */
function header(x, name) {
  const lines = x.getAllResponseHeaders().split("\r\n");
  return lines.find((l) => l.toLowerCase().startsWith(`${name}:`))?.slice(name.length + 1).trim() ?? null;
}

/** @type {Put} */
async function putByFetch(part, body, moved, signal) {
  /** @type {Response} */
  let res;
  let text;
  try {
    res = await fetch(part.url, { method: part.method, headers: settable(part.headers), body, signal });
    text = await res.text();
  } catch (err) {
    if (signal.aborted) throw signal.reason;
    throw new S3Error(0, "");
  }
  if (res.status !== 200) throw new S3Error(res.status, errorCode(text), retryAfter(res.headers.get("Retry-After"), Date.now()));
  moved(body.size);
}

/** S3's own code in an error document, short and plain or not at all. @param {string} xml */
export function errorCode(xml) {
  return /<Code>([A-Za-z0-9]{1,64})<\/Code>/.exec(xml.slice(0, 65536))?.[1] ?? "";
}

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
export function remedy(err) {
  if (!(err instanceof S3Error)) return "fatal";
  const { status, s3code } = err;
  if (status === 0) return offline() ? "offline" : "again";
  if (["ExpiredToken", "RequestExpired", "TokenRefreshRequired"].includes(s3code) || status === 403) return "resign";
  if (status === 412) return "there";
  if (status === 404 && (s3code === "NoSuchUpload" || s3code === "")) return "vanished";
  if (status === 409 || passing(status)) return "again";
  if (damaged(err) || ["IncompleteBody", "RequestTimeout", "RequestTimeTooSkewed"].includes(s3code)) return "again";
  return "fatal";
}

/** Whether S3 got other bytes than were signed for. @param {unknown} err */
export function damaged(err) {
  return err instanceof S3Error &&
    ["BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"].includes(err.s3code);
}
