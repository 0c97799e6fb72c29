// A server and a store in memory, which say what a test has them say. What the real ones
// do is proven in test/page; here are the answers that those cannot be made to give.
import { File } from "node:buffer";
import { createHash, webcrypto } from "node:crypto";
import { Client } from "../index.js";
import { S3Error } from "../s3.js";

// What node 18 has under other names.
globalThis.crypto ??= webcrypto;
globalThis.CustomEvent ??= class extends Event {
  constructor(type, init) {
    super(type, init);
    this.detail = init?.detail;
  }
};

const sha256 = (b) => createHash("sha256").update(b).digest();

export class Fake {
  constructor({ partSize = 4, singleMax = 3, algorithm = "sha256" } = {}) {
    Object.assign(this, { partSize, singleMax, algorithm });
    this.calls = []; // [method, path, body, key]
    this.parts = new Map(); // number → bytes
    this.pins = new Map();
    this.state = "uploading";
    this.file = "active";
    this.expires = 3600_000;
    this.signed = 0;
    this.onCall = null; // (name, body) → problem or undefined
    this.onPut = null; // (part, attempt, progress, signal) → void or throws
    this.attempts = new Map();
  }

  client(o = {}) {
    return new Client({
      url: "https://berth.test", token: "t", retry: { base: 1, cap: 2, attempts: 5 },
      fetch: (url, init) => this.#fetch(url, init), put: (...a) => this.#put(...a), ...o,
    });
  }

  #single() {
    return this.size <= this.singleMax;
  }

  #count() {
    return this.#single() ? 1 : Math.ceil(this.size / this.partSize);
  }

  view(more = {}) {
    const single = this.#single();
    const v = {
      id: "upl_1", file_id: "fil_1", collection: "default", state: this.state, method: single ? "single" : "multipart", size: this.size,
      part_size: single ? this.size : this.partSize, part_count: this.#count(),
      checksum: { algorithm: this.algorithm, type: single || this.algorithm !== "sha256" ? "full_object" : "composite" },
      expires_at: new Date(Date.now() + 3600_000).toISOString(), ...more,
    };
    if (this.state === "committed") v.file = { id: "fil_1", state: this.file, name: "f", size: this.size, checksum: v.checksum, metadata: {}, reason: this.reason };
    return v;
  }

  #sign(number, checksum) {
    this.signed++;
    const size = this.#single() ? this.size : Math.min(this.partSize, this.size - this.partSize * (number - 1));
    return { number, size, method: "PUT", url: `https://s3.test/${number}?n=${this.signed}`, headers: checksum ? { [`x-amz-checksum-${this.algorithm}`]: checksum } : {} };
  }

  async #fetch(url, init) {
    const path = url.replace("https://berth.test", "");
    const body = init.body ? JSON.parse(init.body) : undefined;
    const name = `${init.method} ${path.replace(/upl_\d+/, "ID").replace("/v1/uploads", "")}`.trim();
    this.calls.push([name, body, init.headers["Idempotency-Key"]]);
    const bad = await this.onCall?.(name, body, init);
    if (bad) return new Response(JSON.stringify(bad), { status: bad.status, headers: { "Content-Type": "application/problem+json" } });
    const json = (v, status = 200) => new Response(JSON.stringify(v), { status });
    const expires_at = new Date(Date.now() + this.expires).toISOString();
    switch (name) {
      case "POST": {
        this.size = body.size;
        if (this.instant) return json(this.view({ state: "committed", instant: true, file: { id: "fil_0", state: "active" } }));
        const v = this.view();
        if (v.method === "single") Object.assign(v, { parts: [this.#sign(1, body.checksum?.value)], parts_expire_at: expires_at });
        return json(v, 201);
      }
      case "POST /ID/parts":
        return json({ parts: body.parts.map((p) => (this.pins.set(p.number, p.checksum), this.#sign(p.number, p.checksum))), expires_at });
      case "GET /ID/parts":
        return json({
          parts: [...this.parts].map(([number, b]) => ({ number, size: b.length, etag: "e", checksum: sha256(b).toString("base64") })),
          missing: [],
        });
      case "POST /ID/complete": {
        const missing = Array.from({ length: this.#count() }, (_, i) => i + 1).filter((n) => !this.parts.has(n));
        if (missing.length) return json({ status: 409, code: "MISSING_PARTS", title: "t", type: "u", parts: missing, count: missing.length }, 409);
        this.state = "committed";
        return json(this.view());
      }
      case "GET /ID":
        return json(this.view());
      case "DELETE /ID":
        this.state = "aborted";
        return json(this.view());
    }
    return json({ status: 404, code: "NOT_FOUND" }, 404);
  }

  async #put(part, blob, progress, signal) {
    const n = (this.attempts.get(part.number) ?? 0) + 1;
    this.attempts.set(part.number, n);
    this.under = (this.under ?? 0) + 1;
    this.most = Math.max(this.most ?? 0, this.under);
    try {
      const keep = await this.onPut?.(part, n, progress, signal);
      if (keep === false) return; // says yes and keeps nothing
      const bytes = Buffer.from(await blob.arrayBuffer());
      const pin = part.headers["x-amz-checksum-sha256"];
      if (pin && pin !== sha256(bytes).toString("base64")) throw new S3Error(400, "BadDigest");
      progress(bytes.length);
      this.parts.set(part.number, bytes);
    } finally {
      this.under--;
    }
  }
}

export const file = (text, name = "f.bin") => new File([text], name, { lastModified: 1 });

/** Waits for an event of an upload that fits. */
export const until = (u, fits) => new Promise((ok) => {
  const look = () => fits(u) && (u.removeEventListener("state", look), u.removeEventListener("progress", look), ok());
  u.addEventListener("state", look);
  u.addEventListener("progress", look);
  look();
});
