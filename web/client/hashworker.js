/** The worker's side of hash.js: reads a slice of a file and hashes it, off the page's thread. */
import { digest } from "./digest.js";

self.addEventListener("message", async (/** @type {MessageEvent} */ m) => {
  const { id, algorithm, blob } = m.data;
  const post = /** @type {(v: unknown) => void} */ (self.postMessage.bind(self));
  try {
    post({ id, sum: await digest(algorithm, await blob.arrayBuffer()) });
  } catch (err) {
    post({ id, failed: err instanceof Error ? err.name : "Error" });
  }
});
