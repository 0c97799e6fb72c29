/**
 * The caller's token: from the address's fragment, which no server sees, or pasted. It
 * lives in this tab's session storage and leaves the address bar at once.
 */
const KEY = "berth.token";

/** @typedef {{ owner: string, collection: string, expires: number, admin: boolean }} Claims  expires in milliseconds, 0: never */

/** Takes token and collection out of the address. @returns {{ token: string, collection: string }} */
export function fromAddress() {
  const f = new URLSearchParams(location.hash.slice(1));
  const token = f.get("token") ?? "";
  const collection = f.get("collection") ?? "";
  if (token || collection) history.replaceState(null, "", location.pathname + location.search);
  if (token) keep(token);
  return { token, collection };
}

/** @returns {string} "" if there is none */
export function kept() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

let memory = ""; // where storage is forbidden

/** @param {string} token "" forgets it */
export function keep(token) {
  memory = token;
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // this page remembers it
  }
}

/**
 * What a token says of itself: for showing, never for deciding; the server decides.
 *
 * @param {string} token
 * @returns {Claims | null} null if it is no token
 */
export function claims(token) {
  try {
    const part = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const c = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (x) => x.charCodeAt(0))));
    return { owner: String(c.sub ?? ""), collection: String(c.berth?.collection ?? ""), expires: Number(c.exp ?? 0) * 1000, admin: String(c.scope ?? "").split(" ").includes("admin") };
  } catch {
    return null;
  }
}
