/** One line of the list: a file on its way, or one that was left unfinished. */
import { badge, bytes, left } from "./format.js";
import { icon } from "./icons.js";

/** @typedef {import("../client/upload.js").Upload} Upload */

const WORDS = {
  waiting: "Waiting", preparing: "Preparing", sending: "Sending", paused: "Paused", checking: "Checking", done: "Active",
  failed: "Failed", cancelled: "Cancelled", offline: "No network",
};

/** The state as it is shown. @param {Upload} u @returns {keyof typeof WORDS} */
export function shown(u) {
  return u.offline ? "offline" : u.state;
}

/** @param {keyof typeof WORDS} state */
export function word(state) {
  return WORDS[state];
}

/** @param {string} name @param {number} size */
export function blank(name, size) {
  const t = /** @type {HTMLTemplateElement} */ (document.getElementById("row"));
  const li = /** @type {HTMLLIElement} */ (/** @type {Element} */ (t.content.firstElementChild).cloneNode(true));
  const find = (/** @type {string} */ s) => /** @type {HTMLElement} */ (li.querySelector(s));
  find(".badge").textContent = badge(name);
  find(".name").textContent = name;
  find(".name").title = name;
  find(".detail").textContent = bytes(size);
  find("progress").setAttribute("aria-label", `Progress of ${name}`);
  return { li, find };
}

/**
 * A button whose name for screen readers says what it acts on.
 *
 * @param {import("./icons.js").Icon} i @param {string} text @param {string} name @param {() => void} act @param {boolean} [wide]
 */
export function button(i, text, name, act, wide = false) {
  const b = document.createElement("button");
  b.type = "button";
  b.className = wide ? "with-icon" : "icon";
  b.append(icon(i));
  if (wide) b.append(text);
  b.setAttribute("aria-label", `${text}: ${name}`);
  b.title = text;
  b.addEventListener("click", act);
  return b;
}

export class Row {
  /**
   * @param {Upload} upload
   * @param {{ download: (u: Upload) => void, dismiss: (u: Upload) => void }} acts
   */
  constructor(upload, acts) {
    this.upload = upload;
    this.acts = acts;
    const { li, find } = blank(upload.name, upload.size);
    this.li = li;
    this.find = find;
    this.bar = /** @type {HTMLProgressElement} */ (find("progress"));
    /** @type {string} */
    this.buttons = "";
    this.update();
  }

  update() {
    const u = this.upload;
    const state = shown(u);
    if (this.li.dataset.state !== state) {
      this.li.dataset.state = state;
      this.find(".state").textContent = word(state);
      this.#actions();
      this.#error();
    }
    this.find(".detail").textContent = this.#detail();
    const part = u.size === 0 ? (state === "done" ? 1 : 0) : u.sent / u.size;
    this.bar.value = part;
    this.bar.textContent = `${Math.floor(part * 100)} %`;
  }

  #detail() {
    const u = this.upload;
    const size = bytes(u.size);
    switch (u.state) {
      case "done":
        return u.instant ? `${size} · was here already` : size;
      case "failed":
      case "cancelled":
        return size;
      case "checking":
        return `${size} · has arrived, being checked`;
      case "preparing":
        return `${size} · reading`;
    }
    if (u.sent === 0 && u.state !== "sending") return size;
    const parts = [`${bytes(u.sent)} of ${size}`];
    if (u.rate > 0) parts.push(`${bytes(u.rate)}/s`);
    if (u.rate > 0 && u.eta !== null) parts.push(left(u.eta));
    return parts.join(" · ");
  }

  #error() {
    const box = this.find(".row-error");
    const err = this.upload.state === "failed" ? this.upload.error : null;
    box.hidden = !err;
    if (!err) return;
    box.replaceChildren(err.message);
    const small = document.createElement("span");
    small.className = "soft small";
    small.textContent = ` ${[err.detail, err.code, err.requestId && `request ${err.requestId}`].filter(Boolean).join(" · ")}`;
    box.append(small);
  }

  /** The buttons of this state; one that stays keeps its focus. */
  #actions() {
    const u = this.upload;
    const name = u.name;
    const box = this.find(".actions");
    const focused = box.contains(document.activeElement);
    const toggle = u.state === "paused" || u.pausable;
    const kind = toggle ? "moving" : u.state;
    if (kind !== this.buttons) {
      this.buttons = kind;
      const dismiss = () => button("close", "Remove from list", name, () => this.acts.dismiss(u));
      const cancel = () => button("close", "Cancel", name, () => u.cancel());
      /** @type {HTMLButtonElement[]} */
      let all;
      switch (kind) {
        case "moving":
          all = [button("pause", "Pause", name, () => (u.state === "paused" ? u.resume() : u.pause())), cancel()];
          break;
        case "done":
          all = u.record ? [button("download", "Download", name, () => this.acts.download(u), true), dismiss()] : [dismiss()];
          break;
        case "failed":
          all = [button("retry", "Try again", name, () => void u.retry().catch(() => {}), true), button("close", "Cancel", name, () => {
            u.cancel();
            this.acts.dismiss(u);
          })];
          break;
        case "cancelled":
          all = [dismiss()];
          break;
        default:
          all = [];
      }
      box.replaceChildren(...all);
      if (focused) (/** @type {HTMLElement | null} */ (box.querySelector("button")) ?? this.li).focus();
    }
    if (kind === "moving") {
      const b = /** @type {HTMLButtonElement} */ (box.firstElementChild);
      const text = u.state === "paused" ? "Resume" : "Pause";
      if (b.title !== text) {
        b.title = text;
        b.setAttribute("aria-label", `${text}: ${name}`);
        b.replaceChildren(icon(u.state === "paused" ? "play" : "pause"));
      }
    }
  }
}
