/** The upload page. */
import { Client, codeOf } from "../client/index.js";
import { dropped } from "./drop.js";
import { badge, bytes, count, left } from "./format.js";
import { Row, blank, button, shown, word } from "./row.js";
import { claims, fromAddress, keep, kept } from "./token.js";

/** @typedef {import("../client/index.js").Saved} Saved */
/** @typedef {import("../client/upload.js").Upload} Upload */

/** @template {HTMLElement} T @param {string} id @returns {T} */
const $ = (id) => /** @type {T} */ (document.getElementById(id));

/** Made when it is known who sends. @type {Client} */
let client;
/** @type {Map<Upload, Row>} */
const rows = new Map();
/** Those who wait for a token that works. @type {((token: string) => void)[]} */
const waiting = [];

// ---- who sends

function begin() {
  const { collection } = fromAddress();
  const token = kept();
  if (collection) collectionInput().value = collection;
  if (token) signedIn(token);
  else ask("");
}

/** @param {string} why */
function ask(why) {
  $("sign-in").hidden = false;
  $("app").hidden = rows.size === 0;
  document.body.classList.add("locked");
  $("who").hidden = true;
  $("token-error").textContent = why;
  $("sign-in-title").focus();
}

/** A token that replaces one which the server refused. @returns {Promise<string>} */
function renewed() {
  keep("");
  ask("Your access was refused or has run out. Uploads go on when you enter a new token.");
  return new Promise((resolve) => waiting.push(resolve));
}

/** @param {string} token */
function signedIn(token) {
  const c = claims(token);
  const owner = c?.owner ?? "";
  if (client && client.owner !== owner) return location.reload(); // what is under way is another's
  if (!client) {
    client = new Client({ url: location.origin, owner, token: ({ refresh }) => (refresh || !kept() ? renewed() : kept()) });
    client.addEventListener("state", (e) => changed(/** @type {CustomEvent<Upload>} */ (e).detail));
    client.addEventListener("progress", (e) => touch(/** @type {CustomEvent<Upload>} */ (e).detail));
  }
  document.body.classList.remove("locked");
  $("sign-in").hidden = true;
  $("app").hidden = false;
  $("who").hidden = false;
  $("to-console").hidden = !c?.admin;
  $("who-name").textContent = owner || "signed in";
  const box = collectionInput();
  if (c?.collection) box.value = c.collection;
  /** @type {HTMLElement} */ (box.parentElement).hidden = Boolean(c?.collection); // the grant is for one
  for (const w of waiting.splice(0)) w(token);
  void unfinished();
}

/** @returns {HTMLInputElement} */
const collectionInput = () => $("collection");

$("token-form").addEventListener("submit", (e) => {
  e.preventDefault();
  const field = /** @type {HTMLTextAreaElement} */ ($("token"));
  let token = field.value.trim();
  const link = /[#&]token=([^&\s]+)/.exec(token); // a whole link is understood too
  if (link) token = decodeURIComponent(link[1]);
  const c = claims(token);
  const why = !c ? "This does not look like an access token." : c.expires && c.expires < Date.now() ? "This token has run out." : "";
  $("token-error").textContent = why;
  field.setAttribute("aria-invalid", String(why !== ""));
  if (why) return field.focus();
  field.value = "";
  keep(token);
  signedIn(token);
  $("app-title").focus();
});

$("sign-out").addEventListener("click", () => {
  for (const u of client.uploads) u.pause();
  keep("");
  location.reload();
});

addEventListener("hashchange", begin);

// ---- what is sent

/** @param {{ file: File, handle?: any }[]} list */
function send(list) {
  if (list.length === 0) return;
  const collection = collectionInput().value.trim() || "default";
  const before = $("list").firstChild;
  for (const { file, handle } of list) {
    const u = client.upload(file, { collection, handle });
    const row = new Row(u, { download, dismiss });
    rows.set(u, row);
    $("list").insertBefore(row.li, before); // new ones first, in their own order
  }
  $("now").hidden = false;
  $("app").classList.add("busy");
  say(list.length === 1 ? `${list[0].file.name} added` : `${count(list.length, "file")} added`);
  draw();
  void unfinished();
}

const input = /** @type {HTMLInputElement} */ ($("files"));
input.addEventListener("change", () => {
  send([...(input.files ?? [])].map((file) => ({ file })));
  input.value = "";
});

$("choose").addEventListener("click", async () => {
  const pick = /** @type {any} */ (window).showOpenFilePicker;
  if (!pick) return input.click();
  try {
    /** @type {any[]} */
    const handles = await pick({ multiple: true });
    send(await Promise.all(handles.map(async (handle) => ({ file: await handle.getFile(), handle }))));
  } catch (err) {
    if (/** @type {Error} */ (err).name !== "AbortError") input.click();
  }
});

let depth = 0; // of dragenter, which every element under the pointer fires
const carriesFiles = (/** @type {DragEvent} */ e) => e.dataTransfer?.types.includes("Files") && !$("app").hidden && $("sign-in").hidden;
addEventListener("dragenter", (e) => {
  if (!carriesFiles(e)) return;
  depth++;
  $("drop").classList.add("over");
});
addEventListener("dragleave", () => {
  depth = Math.max(0, depth - 1);
  if (depth === 0) $("drop").classList.remove("over");
});
addEventListener("dragover", (e) => {
  if (!e.dataTransfer?.types.includes("Files")) return;
  e.preventDefault(); // or the browser leaves for the file
  e.dataTransfer.dropEffect = carriesFiles(e) ? "copy" : "none";
});
addEventListener("drop", async (e) => {
  if (!e.dataTransfer?.types.includes("Files")) return;
  e.preventDefault();
  depth = 0;
  $("drop").classList.remove("over");
  if (carriesFiles(e)) send(await dropped(e.dataTransfer));
});

addEventListener("beforeunload", (e) => {
  if ([...(client?.uploads ?? [])].some((u) => ["waiting", "preparing", "sending"].includes(u.state))) e.preventDefault();
});

// ---- what is shown

/** @type {Set<Upload>} */
const dirty = new Set();
let frame = 0;

/** @param {Upload} u */
function touch(u) {
  dirty.add(u);
  frame ||= requestAnimationFrame(draw);
}

// Rates fall though nothing moves; a hidden page has no frames.
setInterval(() => {
  for (const u of client?.uploads ?? []) if (u.state === "sending") dirty.add(u);
  if (dirty.size > 0) draw();
}, 1000);

function draw() {
  frame = 0;
  for (const u of dirty) rows.get(u)?.update();
  dirty.clear();
  const t = client.totals();
  const all = [...client.uploads];
  $("total").hidden = t.files < 2;
  $("app").classList.toggle("busy", rows.size > 0);
  const bar = /** @type {HTMLProgressElement} */ ($("total-bar"));
  bar.value = t.size === 0 ? (t.files === 0 ? 0 : t.done / t.files) : t.sent / t.size;
  bar.textContent = `${Math.floor(bar.value * 100)} %`;
  const open = t.files - t.done - t.failed;
  $("total-title").textContent = open > 0 ? `Uploading ${count(open, "file")}` : t.failed > 0 ? `${count(t.failed, "file")} failed` : "All files are active";
  const parts = [`${t.done} of ${count(t.files, "file")} active`, `${bytes(t.sent)} of ${bytes(t.size)}`];
  if (t.rate > 0) parts.push(`${bytes(t.rate)}/s`);
  if (t.rate > 0 && t.eta !== null && open > 0) parts.push(left(t.eta));
  $("total-text").textContent = parts.join(" · ");
  const moving = all.some((u) => u.pausable);
  const held = all.some((u) => u.state === "paused");
  const pause = /** @type {HTMLButtonElement} */ ($("pause-all"));
  pause.hidden = !moving && !held;
  pause.textContent = moving ? "Pause all" : "Resume all";
  $("clear").hidden = !all.some((u) => u.state === "done" || u.state === "cancelled");
  document.title = open > 0 && t.size > 0 ? `${Math.floor((100 * t.sent) / t.size)} % · Upload files` : "Upload files";
}

$("pause-all").addEventListener("click", () => {
  const moving = [...client.uploads].filter((u) => u.pausable);
  if (moving.length > 0) for (const u of moving) u.pause();
  else for (const u of client.uploads) u.resume();
  draw();
});

$("clear").addEventListener("click", () => {
  for (const u of [...client.uploads]) if (u.state === "done" || u.state === "cancelled") drop(u);
  draw();
  $("choose").focus();
});

/** @param {Upload} u */
function changed(u) {
  touch(u);
  const s = shown(u);
  if (s === "done" || s === "failed" || s === "cancelled") void unfinished();
  if (rows.size <= 3 || s === "failed") {
    if (s === "failed") say(`${u.name}: failed. ${u.error?.message ?? ""}`);
    else if (s !== "waiting" && s !== "preparing") say(`${u.name}: ${word(s)}`);
  } else if (s === "done") {
    const t = client.totals();
    if (t.done === t.files || t.done % 10 === 0) say(`${t.done} of ${count(t.files, "file")} active`);
  }
}

/** Tells screen readers. @param {string} text */
function say(text) {
  $("say").textContent = text;
}

/** @param {Upload} u */
function drop(u) {
  client.drop(u);
  rows.get(u)?.li.remove();
  rows.delete(u);
  $("now").hidden = rows.size === 0;
}

/** @param {Upload} u */
function dismiss(u) {
  const li = rows.get(u)?.li;
  const next = /** @type {HTMLElement | null} */ (li?.nextElementSibling ?? li?.previousElementSibling ?? null);
  drop(u);
  draw();
  (next ?? $("choose")).focus(); // the button that was pressed is gone
}

/** @param {Upload} u */
async function download(u) {
  if (!u.record) return;
  try {
    const { url } = await client.api.contentURL(u.record.id);
    const a = document.createElement("a");
    a.href = url;
    a.rel = "noreferrer";
    a.download = u.record.name;
    a.click();
  } catch (err) {
    say(`${u.name}: ${/** @type {Error} */ (err).message}`);
    const box = rows.get(u)?.find(".row-error");
    if (!box) return;
    box.textContent = /** @type {Error} */ (err).message;
    box.hidden = false;
  }
}

// ---- what an earlier page left

let looking = 0;

async function unfinished() {
  const round = ++looking;
  /** @type {HTMLElement[]} */
  const items = [];
  for (const saved of await client.pending()) {
    /** @type {import("../client/wire.js").Upload | null} */
    let up = null;
    try {
      up = await client.api.upload(/** @type {string} */ (saved.uploadId));
    } catch (err) {
      if (codeOf(err) !== "NOT_FOUND") continue;
    }
    if (!up) continue; // another owner's, perhaps: theirs to go on with
    if (!["init", "uploading", "completing"].includes(up.state)) {
      await client.state.remove(saved.key);
      continue;
    }
    if (saved.handle?.queryPermission && (await saved.handle.queryPermission({ mode: "read" })) === "granted" && (await again(saved))) continue;
    items.push(leftRow(saved, up));
  }
  if (round !== looking) return;
  $("left-list").replaceChildren(...items);
  $("left").hidden = items.length === 0;
}

/** @param {Saved} saved @returns {Promise<boolean>} whether it goes on */
async function again(saved) {
  const u = await client.reopen(saved);
  if (!u) return false;
  const row = new Row(u, { download, dismiss });
  rows.set(u, row);
  $("list").prepend(row.li);
  $("now").hidden = false;
  draw();
  return true;
}

/** @param {Saved} saved @param {import("../client/wire.js").Upload} up */
function leftRow(saved, up) {
  const { li, find } = blank(saved.name, saved.size);
  li.dataset.state = "left";
  find(".badge").textContent = badge(saved.name);
  const part = up.size ? (up.uploaded_bytes ?? 0) / up.size : 0;
  /** @type {HTMLProgressElement} */ (find("progress")).value = part;
  find(".detail").textContent = `${Math.floor(part * 100)} % of ${bytes(saved.size)} has arrived` + (saved.handle ? "" : " · choose the file again to go on");
  find(".actions").append(
    button("play", saved.handle ? "Continue" : "Choose file", saved.name, async () => {
      if (await again(saved)) return void unfinished();
      collectionInput().value = saved.collection; // it is known by name, size, time and this
      $("choose").click();
    }, true),
    button("close", "Discard", saved.name, async () => {
      await client.discard(saved).catch(() => {});
      await unfinished();
      $("choose").focus();
    }),
  );
  return li;
}

begin();
