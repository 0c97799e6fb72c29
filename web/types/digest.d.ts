/** @param {string} a @returns {a is Algorithm} */
export function known(a: string): a is Algorithm;
/**
 * @param {Algorithm} a
 * @param {ArrayBuffer} bytes
 * @returns {Promise<Uint8Array>}
 */
export function digest(a: Algorithm, bytes: ArrayBuffer): Promise<Uint8Array>;
/**
 * The checksum of a whole file from the digests of its parts; null if one is missing.
 *
 * @param {Algorithm} a
 * @param {"full_object" | "composite"} type
 * @param {(Uint8Array | null | undefined)[]} digests  in order
 * @param {number[]} lengths  of the parts, in bytes
 * @returns {Promise<import("./wire.js").Checksum | null>}
 */
export function whole(a: Algorithm, type: "full_object" | "composite", digests: (Uint8Array | null | undefined)[], lengths: number[]): Promise<import("./wire.js").Checksum | null>;
/** Standard base64. @param {Uint8Array} bytes */
export function encode(bytes: Uint8Array): string;
/**
 * @param {Algorithm} a
 * @param {string | undefined} text
 * @returns {Uint8Array | null} null if it is no digest of a
 */
export function decode(a: Algorithm, text: string | undefined): Uint8Array | null;
/** @param {Uint8Array} a @param {Uint8Array} b */
export function equal(a: Uint8Array, b: Uint8Array): boolean;
/**
 * @param {"crc64nvme" | "crc32c"} a
 * @param {Uint8Array} b
 * @returns {Uint8Array} big-endian
 */
export function crc(a: "crc64nvme" | "crc32c", b: Uint8Array): Uint8Array;
/** @param {Uint8Array} b @returns {Uint8Array} */
export function sha256(b: Uint8Array): Uint8Array;
/**
 * Checksums as S3 attests them. SHA-256 is WebCrypto's where the page is a secure context;
 * over plain HTTP browsers have none, and then it is computed here, slower. The CRCs are
 * computed here always.
 */
/** @typedef {import("./wire.js").Algorithm} Algorithm */
/** Bytes of a digest. @type {Readonly<Record<Algorithm, number>>} */
export const SIZES: Readonly<Record<Algorithm, number>>;
export type Algorithm = import("./wire.js").Algorithm;
/**
 * 8 × 256 each
 */
export type Tables = {
    lo: Uint32Array;
    hi: Uint32Array;
};
