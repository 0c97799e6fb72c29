/** Numbers as people read them. */

const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];

/** @param {number} n bytes */
export function bytes(n) {
  let i = 0;
  while (n >= 1000 && i < UNITS.length - 1) {
    n /= 1000;
    i++;
  }
  const digits = i === 0 || n >= 100 ? 0 : 1;
  return new Intl.NumberFormat(undefined, {
    style: "unit", unit: UNITS[i], unitDisplay: i === 0 ? "long" : "short", minimumFractionDigits: 0, maximumFractionDigits: digits,
  }).format(n);
}

/** @param {number} seconds */
export function left(seconds) {
  if (seconds < 1) return "almost there";
  if (seconds < 60) return `${Math.ceil(seconds)} s left`;
  if (seconds < 3600) return `${Math.ceil(seconds / 60)} min left`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.ceil((seconds % 3600) / 60)} min left`;
  return `${Math.ceil(seconds / 86_400)} days left`;
}

/** What is shown in place of a preview: the extension. @param {string} name */
export function badge(name) {
  return /\.([A-Za-z0-9]{1,4})$/.exec(name)?.[1].toUpperCase() ?? "FILE";
}

/** @param {number} n @param {string} one */
export function count(n, one) {
  return `${n} ${one}${n === 1 ? "" : "s"}`;
}
