/** Line icons of 24 × 24, drawn here: nothing is loaded. */
const PATHS = {
  pause: ["M9 5v14", "M15 5v14"],
  play: ["M7 5l12 7-12 7z"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  retry: ["M20 12a8 8 0 1 1-2.5-5.8", "M20 4v4.5h-4.5"],
  download: ["M12 4v11", "M7 11l5 5 5-5", "M5 20h14"],
};

/** @typedef {keyof typeof PATHS} Icon */

/** @param {Icon} name */
export function icon(name) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  for (const d of PATHS[name]) {
    const p = document.createElementNS(ns, "path");
    p.setAttribute("d", d);
    svg.append(p);
  }
  return svg;
}
