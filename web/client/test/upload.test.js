// An upload against answers that the real parts cannot be made to give.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BerthError } from "../index.js";
import { S3Error } from "../s3.js";
import { Fake, file, until } from "./fake.js";

const golden = (name) => JSON.parse(readFileSync(new URL(`../../../client/wire/testdata/${name}.json`, import.meta.url), "utf8"));
const names = (f) => f.calls.map((c) => c[0]);
const code = (u) => u.done.then(() => "done", (e) => e.code);

test("a small file takes three requests, and states its checksum", async () => {
  const f = new Fake();
  const r = await f.client().upload(file("abc", "résumé.txt"), { metadata: { a: 1 }, commit: "auto" }).done;
  assert.deepEqual(names(f), ["POST", "POST /ID/complete"]);
  assert.deepEqual(f.calls[0][1], {
    collection: "default", name: "résumé.txt", size: 3, metadata: { a: 1 }, commit: "auto",
    checksum: { algorithm: "", type: "full_object", value: "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=" },
  });
  // The golden request has that very checksum.
  assert.equal(golden("open_request").checksum.value, f.calls[0][1].checksum.value);
  for (const k of Object.keys(f.calls[0][1])) assert.ok(k in golden("open_request"), k);
  assert.ok(f.calls.every((c) => c[2]?.length >= 16), "open and complete have idempotency keys");
  assert.equal(r.sent, 3);
  assert.equal(r.file.state, "active");
});

test("what changes something has one idempotency key, kept across its retries", async () => {
  const f = new Fake();
  const seen = new Map();
  f.onCall = (name) => {
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return seen.get(name) === 1 ? { status: 503, code: "STORE_UNAVAILABLE" } : { status: 404, code: "NOT_FOUND" };
  };
  const { api } = f.client();
  await Promise.allSettled([api.commit("upl_1", { name: "n" }), api.abort("upl_1"), api.remove("fil_1")]);
  const keys = new Map();
  for (const [name, , key] of f.calls) keys.set(name, [...(keys.get(name) ?? []), key]);
  assert.equal(keys.size, 3);
  const all = new Set();
  for (const [name, [first, second, ...more]] of keys) {
    assert.ok(first?.length >= 16 && first === second && more.length === 0, name);
    all.add(first);
  }
  assert.equal(all.size, 3);
});

test("a large file is sent in parts, each pinned, not more than allowed at once", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = () => new Promise((ok) => setTimeout(ok, 5));
  const r = await f.client({ parallel: 3 }).upload(file("0123456789".repeat(4))).done;
  assert.equal(f.parts.size, 10);
  assert.equal(f.pins.size, 10);
  assert.equal(f.most, 3);
  assert.equal(Buffer.concat([...f.parts].sort((a, b) => a[0] - b[0]).map((p) => p[1])).toString(), "0123456789".repeat(4));
  assert.equal(r.upload.state, "committed");
  const complete = f.calls.find((c) => c[0] === "POST /ID/complete")[1];
  assert.match(complete.checksum.value, /-10$/);
});

test("the parts of several files share the places", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = () => new Promise((ok) => setTimeout(ok, 3));
  const c = f.client({ parallel: 2, files: 3 });
  await Promise.all(Array.from({ length: 5 }, (_, i) => c.upload(file("x".repeat(12), `f${i}`)).done));
  assert.equal(f.most, 2);
  assert.deepEqual({ ...c.totals(), eta: 0, rate: 0 }, { files: 5, done: 5, failed: 0, size: 60, sent: 60, rate: 0, eta: 0 });
});

test("412 on a single PUT: it is there; completing tells", async () => {
  const f = new Fake();
  f.onPut = async (part, n) => {
    f.parts.set(1, Buffer.from("abc")); // an answer that was lost
    throw new S3Error(n === 1 ? 0 : 412, n === 1 ? "" : "PreconditionFailed");
  };
  assert.equal((await f.client().upload(file("abc")).done).file.state, "active");
  assert.equal(f.attempts.get(1), 2);
});

test("403 is signed again once; a refusal that stands is told", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = (part, n) => {
    if (part.number === 2 && n === 1) throw new S3Error(403, "AccessDenied");
  };
  await f.client().upload(file("01234567")).done;
  assert.equal(f.attempts.get(2), 2);

  const g = new Fake({ singleMax: 0 });
  g.onPut = () => { throw new S3Error(403, "SignatureDoesNotMatch"); };
  const u = g.client().upload(file("01234567"));
  assert.equal(await code(u), "STORE_REFUSED");
  assert.match(u.error.detail, /SignatureDoesNotMatch/);
  assert.equal(Math.max(...g.attempts.values()), 2);
});

test("an URL that has run out is not sent with", async () => {
  const f = new Fake({ singleMax: 0 });
  f.expires = -1000; // always out by our clock: each is tried once, and no more
  f.onPut = (part, n) => {
    if (n < 3) throw new S3Error(0, "");
  };
  await f.client().upload(file("0123")).done;
  assert.equal(f.attempts.get(1), 3);
  assert.equal(f.signed, 3);
});

test("damage on the way: the same bytes again", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = (part, n) => {
    if (n < 3) throw new S3Error(400, "BadDigest");
  };
  await f.client().upload(file("0123")).done;
  assert.equal(f.attempts.get(1), 3);
});

test("no answer, time after time: NETWORK, and a retry goes on", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = () => { throw new S3Error(0, ""); };
  const u = f.client().upload(file("0123"));
  assert.equal(await code(u), "NETWORK");
  assert.equal(f.attempts.get(1), 5);
  assert.ok(f.signed > 1, "a refusal that closes the connection looks like the network");
  f.onPut = null;
  await u.retry();
  assert.equal(u.state, "done");
});

test("parts that the server misses or finds corrupt are sent again, so many times", async () => {
  for (const [parts, count] of [[[2], 1], [[[2, 3]], 2], [[2], 1500]]) {
    const f = new Fake({ singleMax: 0 });
    let asked = 0;
    f.onCall = (name) => {
      if (name !== "POST /ID/complete" || asked++ > 0) return undefined;
      if (count > 1000) f.parts.delete(3);
      return { status: 409, code: "PART_CORRUPT", parts, count };
    };
    await f.client().upload(file("0123456789ab")).done;
    const again = [...f.attempts].filter(([, n]) => n === 2).map(([n]) => n).sort((a, b) => a - b); // they race
    assert.deepEqual(again, count > 1000 ? [3] : count === 2 ? [2, 3] : [2]);
  }
  const f = new Fake({ singleMax: 0 });
  f.onCall = (name) => (name === "POST /ID/complete" ? { status: 409, code: "MISSING_PARTS", parts: [1], count: 1 } : undefined);
  assert.equal(await code(f.client().upload(file("01234567"))), "MISSING_PARTS");
  assert.equal(f.attempts.get(1), 4, "bounded");
});

test("completed by somebody else meanwhile", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = (part) => {
    if (part.number === 2) {
      f.state = "committed";
      throw new S3Error(404, "NoSuchUpload");
    }
  };
  f.onCall = (name) => (name === "POST /ID/complete" ? { status: 409, code: "SESSION_CLOSED" } : undefined);
  assert.equal((await f.client({ parallel: 1 }).upload(file("01234567")).done).upload.state, "committed");
});

test("a pause gives up what is under way, and another file's turn comes", async () => {
  const f = new Fake({ singleMax: 0 });
  let blocked = true;
  f.onPut = (part, n, progress, signal) => {
    if (!blocked) return undefined;
    progress(2);
    return new Promise((_, no) => signal.addEventListener("abort", () => no(signal.reason)));
  };
  const c = f.client({ files: 1, parallel: 2 });
  const u = c.upload(file("0123456789ab"));
  await until(u, () => u.sent === 4);
  assert.equal(u.state, "sending");
  u.pause();
  await until(u, () => u.sent === 0);
  assert.equal(u.state, "paused");
  blocked = false;
  const v = c.upload(file("zyxw", "other"));
  await v.done;
  assert.equal(u.state, "paused");
  f.parts.clear();
  f.state = "uploading";
  f.size = 12;
  u.resume();
  await u.done;
  assert.equal(f.parts.size, 3);
});

test("cancel aborts at the server, at any time", async () => {
  for (const when of ["waiting", "sending", "paused"]) {
    const f = new Fake({ singleMax: 0 });
    f.onPut = (part, n, progress, signal) => {
      progress(1);
      return new Promise((_, no) => signal.addEventListener("abort", () => no(signal.reason)));
    };
    const u = f.client().upload(file("01234567"));
    if (when !== "waiting") await until(u, () => u.sent > 0);
    if (when === "paused") u.pause();
    u.cancel();
    assert.equal(await code(u), "CANCELLED");
    assert.equal(u.state, "cancelled");
    assert.equal(names(f).includes("DELETE /ID"), when !== "waiting");
  }
});

test("who sees it cancelled may leave: the server has been asked by then", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = (part, n, progress, signal) => {
    progress(1);
    return new Promise((_, no) => signal.addEventListener("abort", () => no(signal.reason)));
  };
  const c = f.client();
  const u = c.upload(file("01234567"));
  await until(u, () => u.sent > 0);
  let forgotten;
  c.state.remove = () => new Promise((ok) => (forgotten = ok)); // storage takes its time
  let asked;
  const seen = () => u.state === "cancelled" && (asked ??= names(f).includes("DELETE /ID"));
  u.addEventListener("progress", seen);
  u.addEventListener("state", seen);
  u.cancel();
  while (u.state !== "cancelled" || !forgotten) {
    await new Promise(setImmediate);
    seen();
  }
  forgotten();
  assert.equal(await code(u), "CANCELLED");
  assert.equal(asked, true);
});

test("a signal cancels; one that was given before begins nothing", async () => {
  const f = new Fake();
  assert.equal(await code(f.client().upload(file("abc"), { signal: AbortSignal.abort() })), "CANCELLED");
  assert.deepEqual(f.calls, []);
});

test("the file that is there already: nothing is sent", async () => {
  const f = new Fake();
  f.instant = true;
  const r = await f.client().upload(file("abc")).done;
  assert.deepEqual([r.instant, r.sent, r.file.id], [true, 0, "fil_0"]);
  assert.deepEqual(names(f), ["POST"]);
});

test("a collection of another algorithm: learnt from the refusal, then known", async () => {
  const f = new Fake({ algorithm: "crc32c", singleMax: 100 });
  f.onCall = (name, body) => {
    if (name === "POST" && body.checksum && atob(body.checksum.value).length !== 4) {
      return { status: 400, code: "INVALID_REQUEST", field: "checksum.value" };
    }
    return undefined;
  };
  const c = f.client();
  await c.upload(file("123456789")).done;
  assert.deepEqual(names(f), ["POST", "POST", "POST /ID/parts", "POST /ID/complete"]);
  f.calls = [];
  f.state = "uploading";
  await c.upload(file("123456789", "again")).done;
  assert.deepEqual(names(f).slice(0, 1), ["POST"]);
  assert.deepEqual(f.calls[0][1].checksum, { algorithm: "crc32c", type: "full_object", value: "4waSgw==" });
});

test("5xx, 429 and no answer are tried again with the same key; other refusals are told", async () => {
  const f = new Fake();
  let n = 0;
  f.onCall = (name) => {
    if (name !== "POST" || n++ > 2) return undefined;
    if (n === 1) throw new TypeError("fetch failed");
    return n === 2 ? { status: 503, code: "STORE_UNAVAILABLE" } : { status: 409, code: "IDEMPOTENCY_IN_PROGRESS" };
  };
  await f.client().upload(file("abc")).done;
  assert.equal(new Set(f.calls.filter((c) => c[0] === "POST").map((c) => c[2])).size, 1);

  const g = new Fake();
  g.onCall = () => ({ ...golden("problem"), code: "QUOTA_EXCEEDED", detail: "five files", max_files: 5 });
  const u = g.client().upload(file("abc"));
  const err = await u.done.catch((e) => e);
  assert.ok(err instanceof BerthError);
  assert.deepEqual([err.code, err.detail, err.details, err.requestId], ["QUOTA_EXCEEDED", "five files", { max_files: 5 }, "0f8c2d4e6a1b3c5d"]);
  assert.match(err.message, /no room/);
  assert.equal(g.calls.length, 1);
});

test("401: the token is asked for anew, once a call", async () => {
  const f = new Fake();
  const asked = [];
  f.onCall = (name, body, init) => (init.headers.Authorization === "Bearer old" ? { status: 401, code: "UNAUTHENTICATED" } : undefined);
  const token = async ({ refresh }) => (asked.push(refresh), asked.includes(true) ? "new" : "old");
  await f.client({ token }).upload(file("abc")).done;
  assert.deepEqual(asked.slice(0, 2), [false, true]);
});

test("what the checks say in the end", async () => {
  for (const [state, reason, want] of [
    ["blocked", undefined, "BLOCKED"], ["deleting", undefined, "REFUSED"],
    ["failed", { code: "CHECKSUM_MISMATCH", message: "m" }, "CHECKSUM_MISMATCH"],
  ]) {
    const f = new Fake();
    f.file = "processing";
    f.reason = reason;
    const u = f.client().upload(file("abc"));
    await until(u, () => u.state === "checking");
    f.file = state;
    assert.equal(await code(u), want);
  }
});

test("a session that expired is told, and a retry begins anew", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onCall = (name) => (name === "POST /ID/parts" ? { status: 410, code: "SESSION_EXPIRED" } : undefined);
  const u = f.client().upload(file("0123"));
  assert.equal(await code(u), "SESSION_EXPIRED");
  f.onCall = null;
  await u.retry();
  assert.equal(names(f).filter((n) => n === "POST").length, 2);
});

test("a plan that makes no sense is refused", async () => {
  for (const wrong of [{ part_count: 2 }, { part_size: 0 }, { size: 9 }, { method: "both" }, { checksum: { algorithm: "md5" } }]) {
    const f = new Fake({ singleMax: 0 });
    const view = f.view.bind(f);
    f.view = () => ({ ...view(), ...wrong });
    assert.equal(await code(f.client().upload(file("012"))), "BAD_ANSWER", JSON.stringify(wrong));
    assert.equal(f.attempts.size, 0);
  }
});

test("neither errors nor their causes hold an address or a token", async () => {
  const f = new Fake({ singleMax: 0 });
  f.onPut = () => { throw new S3Error(403, "AccessDenied"); };
  const err = await f.client({ token: "secret-token" }).upload(file("0123")).done.catch((e) => e);
  for (let e = err; e; e = e.cause) assert.doesNotMatch(`${e.message} ${e.detail ?? ""} ${e.stack}`, /s3\.test|secret-token/);
});
