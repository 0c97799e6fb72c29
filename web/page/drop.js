/** Files that are dropped on the page, folders and all, with handles where the browser gives them. */

/** @typedef {{ file: File, handle?: any }} Dropped */

/**
 * Must be called while the event runs: what it carries is gone afterwards.
 *
 * @param {DataTransfer} data
 * @returns {Promise<Dropped[]>}
 */
export async function dropped(data) {
  const items = [...data.items].filter((i) => i.kind === "file");
  const plain = [...data.files];
  const handles = items.map((i) => /** @type {any} */ (i).getAsFileSystemHandle?.() ?? null);
  const entries = items.map((i) => i.webkitGetAsEntry?.() ?? null);
  /** @type {Dropped[]} */
  const out = [];
  for (let n = 0; n < items.length; n++) {
    const handle = await Promise.resolve(handles[n]).catch(() => null);
    if (handle) await fromHandle(handle, out);
    else if (entries[n]) await fromEntry(/** @type {FileSystemEntry} */ (entries[n]), out);
  }
  return out.length > 0 ? out : plain.map((file) => ({ file }));
}

/** @param {any} handle @param {Dropped[]} out */
async function fromHandle(handle, out) {
  if (handle.kind === "file") out.push({ file: await handle.getFile(), handle });
  else for await (const h of handle.values()) await fromHandle(h, out);
}

/** @param {FileSystemEntry} entry @param {Dropped[]} out @returns {Promise<void>} */
async function fromEntry(entry, out) {
  if (entry.isFile) {
    const file = await new Promise((ok, no) => /** @type {FileSystemFileEntry} */ (entry).file(ok, no)).catch(() => null);
    if (file) out.push({ file });
    return;
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((ok, no) => reader.readEntries(ok, no));
    if (some.length === 0) return;
    for (const e of some) await fromEntry(e, out);
  }
}
