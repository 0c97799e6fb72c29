// The types of wire.js against the golden files of client/wire, which the server's and the
// Go client's tests read too: no field is unknown here, none is missing there.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const dir = new URL("../../../client/wire/testdata/", import.meta.url);

/** Which type each golden file is. Those that no browser reads (tasks, events) are not here. */
const types = {
  open_request: "OpenRequest", open_request_least: "OpenRequest",
  upload_opened: "Upload", upload_progress: "Upload", upload_rejected: "Upload", upload_instant: "Upload",
  sign_request_list: "SignRequest", sign_request_range: "SignRequest", sign_response: "SignResponse",
  parts_response: "PartsResponse", complete_request: "CompleteRequest", complete_request_empty: "CompleteRequest",
  commit_request: "CommitRequest", file: "FileRecord", file_failed: "FileRecord", file_list: "FileList", file_list_empty: "FileList",
  patch_request: "PatchRequest", content_url: "ContentURL", history: "History", problem: "Problem",
};

/** The typedefs of wire.js: name → property → {type, optional}. */
function typedefs() {
  const out = { unions: {}, objects: {} };
  let current = null;
  for (const text of readFileSync(new URL("../wire.js", import.meta.url), "utf8").split("\n")) {
    let m = /@typedef \{object\} (\w+)/.exec(text);
    if (m) {
      current = out.objects[m[1]] = {};
      continue;
    }
    m = /@typedef \{(.+)\} (\w+)/.exec(text);
    if (m) {
      out.unions[m[2]] = m[1].split("|").map((s) => JSON.parse(s));
      continue;
    }
    m = /@property \{(.+?)\} (\[)?(\w+)/.exec(text);
    if (m && current) current[m[3]] = { type: m[1], optional: Boolean(m[2]) };
  }
  return out;
}

const { unions, objects } = typedefs();
const seen = new Set();

function check(value, type, where) {
  const list = /^(\w+)\[\]$/.exec(type);
  if (list) {
    assert.ok(Array.isArray(value), `${where} is no list`);
    value.forEach((v, i) => check(v, list[1], `${where}[${i}]`));
  } else if (objects[type]) {
    assert.equal(typeof value, "object", where);
    for (const [k, v] of Object.entries(value)) {
      const p = objects[type][k];
      assert.ok(p, `${where}: wire.js has no ${type}.${k}`);
      seen.add(`${type}.${k}`);
      check(v, p.type, `${where}.${k}`);
    }
    for (const [k, p] of Object.entries(objects[type])) assert.ok(p.optional || k in value, `${where} lacks ${type}.${k}`);
  } else if (unions[type]) {
    assert.ok(unions[type].includes(value), `${where}: ${value} is none of ${type}`);
  } else if (["string", "number", "boolean"].includes(type)) {
    assert.equal(typeof value, type, where);
  } else if (type === "Record<string, string>") {
    for (const v of Object.values(value)) assert.equal(typeof v, "string", where);
  } else if (type === "[number, number][]") {
    for (const p of value) assert.deepEqual(p.map((n) => typeof n), ["number", "number"], where);
  } else if (type.includes("|")) {
    const words = type.split("|").map((s) => s.trim());
    assert.ok(words.some((w) => (w.startsWith('"') ? JSON.parse(w) === value : unions[w]?.includes(value))), `${where}: ${value} is not ${type}`);
  } else {
    assert.equal(type, "unknown", `${where}: the test does not know the type ${type}`);
  }
}

test("the golden files are of the types that wire.js says", () => {
  const files = readdirSync(dir).filter((f) => f.endsWith(".json")).map((f) => f.slice(0, -5));
  for (const f of Object.keys(types)) assert.ok(files.includes(f), `${f}.json is gone`);
  for (const f of Object.keys(types)) check(JSON.parse(readFileSync(new URL(`${f}.json`, dir), "utf8")), types[f], f);
  for (const [type, properties] of Object.entries(objects)) {
    for (const k of Object.keys(properties)) assert.ok(seen.has(`${type}.${k}`), `no golden file has ${type}.${k}: is it real?`);
  }
});

test("a field that is not in wire.js fails", () => {
  assert.throws(() => check({ code: "X", message: "", more: 1 }, "Reason", "x"), /no Reason\.more/);
  assert.throws(() => check({ code: "X" }, "Reason", "x"), /lacks Reason\.message/);
  assert.throws(() => check("sha1", "Algorithm", "x"), /none of Algorithm/);
});
