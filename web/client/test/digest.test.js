// Checksums against the standards' own check values, against node's crypto, and against
// themselves put together from parts.
import assert from "node:assert/strict";
import { createHash, randomBytes, webcrypto } from "node:crypto";
import { test } from "node:test";
import { crc, decode, digest, encode, sha256, whole } from "../digest.js";

globalThis.crypto ??= webcrypto; // node 18

const hex = (b) => Buffer.from(b).toString("hex");

test("check values", () => {
  const nine = new TextEncoder().encode("123456789");
  assert.equal(hex(crc("crc32c", nine)), "e3069283");
  assert.equal(hex(crc("crc64nvme", nine)), "ae8b14860a799888");
  assert.equal(hex(crc("crc32c", new Uint8Array())), "00000000");
  assert.equal(hex(crc("crc64nvme", new Uint8Array())), "0000000000000000");
  assert.equal(hex(sha256(new TextEncoder().encode("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});

test("SHA-256 without WebCrypto is the same", async () => {
  for (const n of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 65537]) {
    const b = new Uint8Array(randomBytes(n));
    const want = createHash("sha256").update(b).digest("hex");
    assert.equal(hex(sha256(b)), want, `${n} bytes`);
    assert.equal(hex(await digest("sha256", b.buffer)), want, `${n} bytes by WebCrypto`);
  }
});

test("the tables agree with one byte at a time, whatever the length", () => {
  for (let n = 0; n < 40; n++) {
    const b = new Uint8Array(randomBytes(n));
    let c = 0xffffffff;
    for (const x of b) {
      c ^= x;
      for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
    }
    assert.equal(hex(crc("crc32c", b)), ((~c >>> 0).toString(16)).padStart(8, "0"));
  }
});

test("parts put together are the whole", async () => {
  for (const a of ["crc32c", "crc64nvme"]) {
    for (let round = 0; round < 20; round++) {
      const b = new Uint8Array(randomBytes(1 + Math.floor(Math.random() * 5000)));
      const size = 1 + Math.floor(Math.random() * b.length);
      const parts = [];
      for (let i = 0; i < b.length; i += size) parts.push(b.subarray(i, i + size));
      const sum = await whole(a, "full_object", parts.map((p) => crc(a, p)), parts.map((p) => p.length));
      assert.deepEqual(sum, { algorithm: a, type: "full_object", value: encode(crc(a, b)) });
    }
  }
});

test("a composite is over the parts' digests, and needs all of them", async () => {
  const parts = [randomBytes(10), randomBytes(3)].map((p) => createHash("sha256").update(p).digest());
  const want = createHash("sha256").update(Buffer.concat(parts)).digest("base64");
  assert.equal((await whole("sha256", "composite", parts.map((p) => new Uint8Array(p)), [10, 3])).value, `${want}-2`);
  assert.equal(await whole("sha256", "composite", [new Uint8Array(parts[0]), null], [10, 3]), null);
  assert.equal(await whole("sha256", "full_object", parts.map((p) => new Uint8Array(p)), [10, 3]), null);
});

test("what is no digest is none", () => {
  assert.equal(decode("sha256", "AAAA"), null);
  assert.equal(decode("crc32c", "%%%"), null);
  assert.equal(decode("crc32c", undefined), null);
  assert.equal(hex(decode("crc32c", "4waSgw==")), "e3069283");
});
