/**
 * Checksums as S3 attests them. SHA-256 is WebCrypto's where the page is a secure context;
 * over plain HTTP browsers have none, and then it is computed here, slower. The CRCs are
 * computed here always.
 */

/** @typedef {import("./wire.js").Algorithm} Algorithm */

/** Bytes of a digest. @type {Readonly<Record<Algorithm, number>>} */
export const SIZES = Object.freeze({ sha256: 32, crc64nvme: 8, crc32c: 4 });

/** @param {string} a @returns {a is Algorithm} */
export function known(a) {
  return Object.hasOwn(SIZES, a);
}

/**
 * @param {Algorithm} a
 * @param {ArrayBuffer} bytes
 * @returns {Promise<Uint8Array>}
 */
export async function digest(a, bytes) {
  if (a === "sha256") {
    if (globalThis.crypto?.subtle) return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return sha256(new Uint8Array(bytes));
  }
  return crc(a, new Uint8Array(bytes));
}

/**
 * The checksum of a whole file from the digests of its parts; null if one is missing.
 *
 * @param {Algorithm} a
 * @param {"full_object" | "composite"} type
 * @param {(Uint8Array | null | undefined)[]} digests  in order
 * @param {number[]} lengths  of the parts, in bytes
 * @returns {Promise<import("./wire.js").Checksum | null>}
 */
export async function whole(a, type, digests, lengths) {
  /** @type {Uint8Array[]} */
  const all = [];
  for (const d of digests) {
    if (!d || d.length !== SIZES[a]) return null;
    all.push(d);
  }
  if (all.length === 0) return null;
  if (type === "composite") {
    const joined = new Uint8Array(SIZES[a] * all.length);
    all.forEach((d, i) => joined.set(d, i * SIZES[a]));
    return { algorithm: a, type, value: `${encode(await digest(a, joined.buffer))}-${all.length}` };
  }
  if (all.length === 1) return { algorithm: a, type, value: encode(all[0]) };
  if (a === "sha256") return null; // cannot be put together
  let sum = toInt(all[0]);
  for (let i = 1; i < all.length; i++) sum = combine(a, sum, toInt(all[i]), lengths[i]);
  return { algorithm: a, type, value: encode(fromInt(sum, SIZES[a])) };
}

/** Standard base64. @param {Uint8Array} bytes */
export function encode(bytes) {
  return btoa(String.fromCharCode(...bytes));
}

/**
 * @param {Algorithm} a
 * @param {string | undefined} text
 * @returns {Uint8Array | null} null if it is no digest of a
 */
export function decode(a, text) {
  if (!text) return null;
  try {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return bytes.length === SIZES[a] ? bytes : null;
  } catch {
    return null;
  }
}

/** @param {Uint8Array} a @param {Uint8Array} b */
export function equal(a, b) {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

// ---- CRCs. Both are reflected, begin with all ones and are inverted at the end. The
// state is two halves of 32 bits, and eight bytes are taken at a time through eight
// tables; a CRC of 32 bits has nothing in its upper half.

/** @type {Record<"crc64nvme" | "crc32c", { poly: bigint, bits: bigint }>} */
const CRCS = {
  crc64nvme: { poly: 0x9a6c9329ac4bc9b5n, bits: 64n },
  crc32c: { poly: 0x82f63b78n, bits: 32n },
};

/** @typedef {{ lo: Uint32Array, hi: Uint32Array }} Tables  8 × 256 each */

/** @type {Partial<Record<"crc64nvme" | "crc32c", Tables>>} */
const made = {};

/** @param {"crc64nvme" | "crc32c"} a @returns {Tables} */
function tables(a) {
  const have = made[a];
  if (have) return have;
  const lo = new Uint32Array(2048);
  const hi = new Uint32Array(2048);
  /** @type {bigint[]} */
  const first = [];
  for (let i = 0; i < 256; i++) {
    let c = BigInt(i);
    for (let k = 0; k < 8; k++) c = c & 1n ? (c >> 1n) ^ CRCS[a].poly : c >> 1n;
    first.push(c);
  }
  let row = first;
  for (let t = 0; t < 8; t++) {
    row.forEach((c, i) => {
      lo[t * 256 + i] = Number(c & 0xffffffffn);
      hi[t * 256 + i] = Number(c >> 32n);
    });
    row = row.map((c) => (c >> 8n) ^ first[Number(c & 0xffn)]);
  }
  return (made[a] = { lo, hi });
}

/**
 * @param {"crc64nvme" | "crc32c"} a
 * @param {Uint8Array} b
 * @returns {Uint8Array} big-endian
 */
export function crc(a, b) {
  const { lo: L, hi: H } = tables(a);
  const wide = a === "crc64nvme";
  let lo = -1;
  let hi = wide ? -1 : 0;
  let i = 0;
  for (const end = b.length - (b.length % 8); i < end; i += 8) {
    const x = lo ^ (b[i] | (b[i + 1] << 8) | (b[i + 2] << 16) | (b[i + 3] << 24));
    const y = hi ^ (b[i + 4] | (b[i + 5] << 8) | (b[i + 6] << 16) | (b[i + 7] << 24));
    const p = 1792 + (x & 255), q = 1536 + ((x >>> 8) & 255), r = 1280 + ((x >>> 16) & 255), s = 1024 + (x >>> 24);
    const t = 768 + (y & 255), u = 512 + ((y >>> 8) & 255), v = 256 + ((y >>> 16) & 255), w = y >>> 24;
    lo = L[p] ^ L[q] ^ L[r] ^ L[s] ^ L[t] ^ L[u] ^ L[v] ^ L[w];
    hi = H[p] ^ H[q] ^ H[r] ^ H[s] ^ H[t] ^ H[u] ^ H[v] ^ H[w];
  }
  for (; i < b.length; i++) {
    const k = (lo ^ b[i]) & 255;
    lo = ((lo >>> 8) | (hi << 24)) ^ L[k];
    hi = (hi >>> 8) ^ H[k];
  }
  const out = new DataView(new ArrayBuffer(SIZES[a]));
  if (wide) out.setUint32(0, ~hi >>> 0);
  out.setUint32(wide ? 4 : 0, ~lo >>> 0);
  return new Uint8Array(out.buffer);
}

/** @param {Uint8Array} d */
function toInt(d) {
  return d.reduce((n, b) => (n << 8n) | BigInt(b), 0n);
}

/** @param {bigint} n @param {number} size */
function fromInt(n, size) {
  return Uint8Array.from({ length: size }, (_, i) => Number((n >> BigInt(8 * (size - 1 - i))) & 0xffn));
}

/**
 * crc(A‖B) = crc(A)·x^(8|B|) mod P ⊕ crc(B), in reflected form.
 *
 * @param {"crc64nvme" | "crc32c"} a
 * @param {bigint} x  crc(A)
 * @param {bigint} y  crc(B)
 * @param {number} length  |B| in bytes
 */
function combine(a, x, y, length) {
  const { poly, bits } = CRCS[a];
  const one = 1n << (bits - 1n);
  const times = (/** @type {bigint} */ f, /** @type {bigint} */ g) => {
    let p = 0n;
    for (let m = one; m; m >>= 1n) {
      if (f & m) p ^= g;
      g = g & 1n ? (g >> 1n) ^ poly : g >> 1n;
    }
    return p;
  };
  let power = one; // x^0
  let square = one >> 1n; // x^1
  for (let n = BigInt(length) * 8n; n; n >>= 1n) {
    if (n & 1n) power = times(power, square);
    square = times(square, square);
  }
  return times(power, x) ^ y;
}

// ---- SHA-256, FIPS 180-4, for pages without WebCrypto.

const K = constants(64, 3);

/** The first 32 bits of the fractions of the roots of the first n primes. @param {number} n @param {2 | 3} root */
function constants(n, root) {
  /** @type {number[]} */
  const out = [];
  for (let p = 2; out.length < n; p++) {
    let prime = true;
    for (let d = 2; d * d <= p; d++) if (p % d === 0) prime = false;
    if (!prime) continue;
    // floor(root(p) · 2^32) by bisection, exactly
    const target = BigInt(p) << BigInt(32 * root);
    let lo = 0n;
    let hi = 1n << 40n;
    while (hi - lo > 1n) {
      const mid = (lo + hi) >> 1n;
      if (mid ** BigInt(root) <= target) lo = mid;
      else hi = mid;
    }
    out.push(Number(lo & 0xffffffffn) | 0);
  }
  return Int32Array.from(out);
}

/** @param {Uint8Array} b @returns {Uint8Array} */
export function sha256(b) {
  const h = constants(8, 2);
  const w = new Int32Array(64);
  const rest = b.length % 64;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(b.subarray(b.length - rest));
  tail[rest] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(b.length / 0x20000000));
  view.setUint32(tail.length - 4, (b.length << 3) >>> 0);
  for (let i = 0; i < b.length - rest; i += 64) block(h, w, b, i);
  for (let i = 0; i < tail.length; i += 64) block(h, w, tail, i);
  const out = new DataView(new ArrayBuffer(32));
  h.forEach((x, i) => out.setInt32(4 * i, x));
  return new Uint8Array(out.buffer);
}

/** @param {Int32Array} h @param {Int32Array} w @param {Uint8Array} m @param {number} at */
function block(h, w, m, at) {
  for (let i = 0; i < 16; i++, at += 4) w[i] = (m[at] << 24) | (m[at + 1] << 16) | (m[at + 2] << 8) | m[at + 3];
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, k] = h;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (k + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    k = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  h[0] += a;
  h[1] += b;
  h[2] += c;
  h[3] += d;
  h[4] += e;
  h[5] += f;
  h[6] += g;
  h[7] += k;
}
