// The small parts: waiting, places, rates, errors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { partNumbers, problem, sentence } from "../errors.js";
import { Rate, eta } from "../rate.js";
import { Slots, passing, retryAfter, sleep, wait } from "../retry.js";
import { S3Error, errorCode, remedy } from "../s3.js";

test("a wait is anywhere up to its ceiling, and not below what was asked for", () => {
  const p = { attempts: 8, base: 100, cap: 1000 };
  for (let n = 1; n < 60; n++) {
    const w = wait(p, n);
    assert.ok(w >= 0 && w <= Math.min(1000, 100 * 2 ** (n - 1)), `${n}: ${w}`);
  }
  assert.ok(wait(p, 1, 5000) >= 5000);
  assert.ok(wait(p, 1, 1e9) <= 120_000);
  const spread = new Set(Array.from({ length: 50 }, () => Math.floor(wait(p, 10) / 100)));
  assert.ok(spread.size > 3, "no jitter");
});

test("Retry-After in seconds, as a date, or nonsense", () => {
  assert.equal(retryAfter("3", 0), 3000);
  assert.equal(retryAfter("Thu, 01 Jan 1970 00:00:05 GMT", 1000), 4000);
  for (const v of [null, "", "soon", "-3"]) assert.equal(retryAfter(v, 0), 0);
  assert.deepEqual([429, 500, 503, 520, 501, 505, 404].map(passing), [true, true, true, true, false, false, false]);
});

test("places: first come, first served; who gives up leaves the queue", async () => {
  const s = new Slots(1);
  const give = await s.take();
  const stop = new AbortController();
  const order = [];
  const a = s.take(stop.signal).catch(() => order.push("gave up"));
  const b = s.take().then((g) => (order.push("b"), g));
  stop.abort(new Error("x"));
  await a;
  give();
  give(); // twice is once
  (await b)();
  assert.deepEqual(order, ["gave up", "b"]);
  assert.equal(s.free, 1);
});

test("sleep ends with its signal", async () => {
  const stop = new AbortController();
  const slept = sleep(60_000, stop.signal);
  stop.abort("why");
  await assert.rejects(slept, (e) => e === "why");
});

test("a rate is of the last seconds, and never below nothing", () => {
  const r = new Rate();
  for (let t = 0; t <= 20_000; t += 200) r.add(t, t < 10_000 ? 0 : (t - 10_000) * 2);
  assert.ok(Math.abs(r.perSecond(20_000) - 2000) < 50);
  r.add(20_200, 5000); // much must leave again
  assert.ok(r.perSecond(20_200) >= 0);
  r.reset();
  assert.equal(r.perSecond(20_300), 0);
  assert.deepEqual([eta(100, 50), eta(100, 0), eta(0, 0)], [2, null, 0]);
});

test("what S3's answers call for", () => {
  const cases = [
    [0, "", "again"], [403, "AccessDenied", "resign"], [400, "ExpiredToken", "resign"], [412, "PreconditionFailed", "there"],
    [404, "NoSuchUpload", "vanished"], [404, "NoSuchBucket", "fatal"], [400, "BadDigest", "again"], [400, "EntityTooLarge", "fatal"],
    [409, "ConditionalRequestConflict", "again"], [503, "SlowDown", "again"], [400, "RequestTimeout", "again"], [501, "NotImplemented", "fatal"],
  ];
  for (const [status, s3code, want] of cases) assert.equal(remedy(new S3Error(status, s3code)), want, `${status} ${s3code}`);
  assert.equal(remedy(new Error("ours")), "fatal");
  assert.equal(errorCode("<Error><Code>SlowDown</Code><Message>https://…</Message></Error>"), "SlowDown");
  assert.equal(errorCode("<Code>no spaces, please</Code>"), "");
});

test("whatever answers in place of the server is understood", () => {
  assert.equal(problem("open", 502, "text/html", "<h1>Bad gateway</h1>", "").code, "INTERNAL");
  assert.equal(problem("open", 401, "", "", "").code, "UNAUTHENTICATED");
  assert.equal(problem("open", 413, "text/html", "", "").code, "TOO_LARGE");
  assert.equal(problem("open", 400, "application/json", "{", "").code, "INTERNAL");
  assert.equal(problem("open", 400, "application/json", "null", "").code, "INTERNAL");
  assert.deepEqual(partNumbers([3, [5, 7], 0, 99, "x", null, [1e9, 2e9], 3], 9), [3, 5, 6, 7]);
  assert.deepEqual(partNumbers("3", 9), []);
  assert.equal(sentence("NEW_CODE"), "The upload did not succeed.");
});
