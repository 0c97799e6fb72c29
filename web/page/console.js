/**
 * The console: an owner's files with their timelines, and, for who may, the tasks in the
 * background. It shows what the API says and decides nothing.
 */
import { Client, codeOf } from "../client/index.js";
import { bytes } from "./format.js";
import { claims, fromAddress, kept } from "./token.js";

/** @typedef {import("../client/wire.js").FileRecord} FileRecord */
/** @typedef {{ id: string, kind: string, target: string, file_id: string, state: string, run_at: string, attempts: number, max_attempts: number, last_error?: string }} Task */

/** @template {HTMLElement} T @param {string} id @returns {T} */
const $ = (id) => /** @type {T} */ (document.getElementById(id));
/** @param {string} id */
const value = (id) => /** @type {HTMLInputElement} */ ($(id)).value.trim();

fromAddress();
const token = kept();
const who = claims(token);
const client = new Client({ url: location.origin, token });
const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {unknown} err */
function problem(err) {
  const e = /** @type {import("../client/index.js").BerthError} */ (err);
  const box = $("problem");
  box.hidden = false;
  box.textContent = `${e.message} ${[e.detail, e.code, e.requestId && `request ${e.requestId}`].filter(Boolean).join(" · ")}`;
}

/** @param {() => Promise<void>} act */
async function attempt(act) {
  $("problem").hidden = true;
  try {
    await act();
  } catch (err) {
    problem(err);
  }
}

/** @param {string | Node} content @param {string} [kind] */
function cell(content, kind = "") {
  const td = document.createElement("td");
  td.className = kind;
  td.append(content);
  if (kind === "long" && typeof content === "string") td.title = content;
  return td;
}

/** @param {string} state */
function pill(state) {
  const s = document.createElement("span");
  s.className = "state";
  s.textContent = state;
  s.dataset.kind = ["active", "succeeded"].includes(state) ? "good"
    : ["failed", "delete_failed", "blocked"].includes(state) ? "bad"
    : ["preparing", "processing", "deleting", "running"].includes(state) ? "busy" : "";
  return s;
}

/** @param {string} text @param {string} of @param {() => Promise<void>} act */
function action(text, of, act) {
  const b = document.createElement("button");
  b.type = "button";
  b.textContent = text;
  b.setAttribute("aria-label", `${text}: ${of}`);
  b.addEventListener("click", () => attempt(act));
  return b;
}

/** @param {HTMLButtonElement[]} buttons */
function actions(buttons) {
  const box = document.createElement("div");
  box.className = "actions";
  box.append(...buttons);
  return box;
}

/**
 * Fills a table page by page.
 *
 * @template T
 * @param {string} id
 * @param {(cursor: string) => Promise<{ items: T[], next: string }>} ask
 * @param {(item: T) => HTMLTableRowElement} draw
 */
function lister(id, ask, draw) {
  let next = "";
  const load = async (/** @type {boolean} */ more) => {
    const page = await ask(more ? next : "");
    next = page.next;
    const rows = page.items.map(draw);
    if (more) $(`${id}-rows`).append(...rows);
    else $(`${id}-rows`).replaceChildren(...rows);
    $(`${id}-more`).hidden = !next;
    $(`${id}-empty`).hidden = $(`${id}-rows`).childElementCount > 0;
    $("say").textContent = `${$(`${id}-rows`).childElementCount} ${id} shown`;
  };
  $(`${id}-filter`).addEventListener("submit", (e) => {
    e.preventDefault();
    void attempt(() => load(false));
  });
  $(`${id}-more`).addEventListener("click", () => attempt(() => load(true)));
  return () => load(false);
}

const files = lister("files", async (cursor) => {
  const list = await client.api.files({ collection: value("collection"), state: value("state"), cursor, limit: 50 });
  return { items: list.files, next: list.next_cursor ?? "" };
}, fileRow);

/** @param {FileRecord} f @returns {HTMLTableRowElement} */
function fileRow(f) {
  const tr = document.createElement("tr");
  const buttons = [action("History", f.name, () => timeline(f))];
  if (f.state === "active") buttons.unshift(action("Download", f.name, () => download(f)));
  if (["active", "blocked", "failed"].includes(f.state)) buttons.push(action("Delete", f.name, async () => {
    if (!(await sure(f))) return;
    const now = await client.api.remove(f.id);
    const fresh = fileRow(now);
    tr.replaceWith(fresh);
    fresh.querySelector("button")?.focus();
    $("say").textContent = `${f.name}: ${now.state}`;
  }));
  const state = pill(f.state);
  if (f.reason) state.title = `${f.reason.code}: ${f.reason.message}`;
  tr.append(cell(f.name, "long"), cell(f.collection), cell(bytes(f.size), "num"), cell(state), cell(when.format(new Date(f.created_at))), cell(actions(buttons)));
  return tr;
}

/** @param {FileRecord} f */
async function download(f) {
  const a = document.createElement("a");
  a.href = (await client.api.contentURL(f.id)).url;
  a.rel = "noreferrer";
  a.click();
}

/** @param {FileRecord} f */
async function timeline(f) {
  const { history } = await client.api.history(f.id);
  $("timeline-title").textContent = f.name;
  $("timeline-list").replaceChildren(...history.map((h) => {
    const li = document.createElement("li");
    li.textContent = `${when.format(new Date(h.at))}: ${h.what} ${h.from ? `${h.from} → ` : ""}${h.to} (${h.actor}${h.why ? `, ${h.why}` : ""})`;
    return li;
  }));
  /** @type {HTMLDialogElement} */ ($("timeline")).showModal();
}

/** @param {FileRecord} f @returns {Promise<boolean>} */
function sure(f) {
  const d = /** @type {HTMLDialogElement} */ ($("sure"));
  $("sure-title").textContent = `Delete ${f.name}?`;
  d.returnValue = "no";
  d.showModal();
  return new Promise((resolve) => d.addEventListener("close", () => resolve(d.returnValue === "yes"), { once: true }));
}

const tasks = lister("tasks", async (cursor) => {
  const q = new URLSearchParams({ limit: "50" });
  if (value("task-state")) q.set("state", value("task-state"));
  if (cursor) q.set("cursor", cursor);
  /** @type {{ tasks: Task[], next_cursor?: string }} */
  const list = await client.api.call({ op: "tasks", method: "GET", path: `/v1/tasks?${q}` });
  return { items: list.tasks, next: list.next_cursor ?? "" };
}, taskRow);

/** @param {Task} t @returns {HTMLTableRowElement} */
function taskRow(t) {
  const tr = document.createElement("tr");
  const buttons = t.state !== "failed" ? [] : [action("Retry", `${t.kind} of ${t.target}`, async () => {
    await client.api.call({ op: "retry", method: "POST", path: `/v1/tasks/${t.id}/retry` });
    await tasks();
  })];
  tr.append(cell(t.kind), cell(t.target, "long"), cell(pill(t.state)), cell(`${t.attempts} of ${t.max_attempts}`, "num"),
    cell(when.format(new Date(t.run_at))), cell(t.last_error ?? "", "long"), cell(actions(buttons)));
  return tr;
}

if (!token) {
  $("problem").hidden = false;
  $("problem").textContent = "Sign in on the upload page first, in this tab.";
} else {
  $("who-name").textContent = who?.owner || "signed in";
  $("who-name").hidden = false;
  void attempt(async () => {
    $("files").hidden = false;
    await files();
    try {
      await tasks();
      $("tasks").hidden = false;
    } catch (err) {
      if (!["FORBIDDEN", "NOT_FOUND"].includes(codeOf(err))) throw err; // not everybody may see them
    }
  });
}
