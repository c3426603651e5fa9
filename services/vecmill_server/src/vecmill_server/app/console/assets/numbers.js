// Numbers, times and sizes as people read them.

const LOCALE = "en";

/** A number as text with a minus sign instead of a hyphen, and with none before zero. */
function signed(text) {
  return text.replace(/^-/, /[1-9]/.test(text) ? "\u2212" : "");
}

/** A number with a fixed number of digits after the point. */
export function fixed(value, digits = 3) {
  return signed(value.toLocaleString(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}

/** A number with about three significant digits. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value && Math.abs(value) < 1e-4) return signed(value.toExponential(1));
  return signed(value.toLocaleString(LOCALE, { maximumSignificantDigits: 3 }));
}

/** A number to hundredths: `0.01` of a core. */
export function hundredths(value) {
  return Number.isFinite(value) ? signed(value.toLocaleString(LOCALE, { maximumFractionDigits: 2 })) : "–";
}

/** A time in the unit that fits. */
export function time(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${short(seconds * 1000)} ms`;
  return seconds < 120 ? `${short(seconds)} s` : `${short(seconds / 60)} min`;
}

/** A number of bytes in the unit that fits. */
export function bytes(count) {
  if (count < 1e6) return `${short(count / 1e3)} kB`;
  return count < 1e9 ? `${short(count / 1e6)} MB` : `${short(count / 1e9)} GB`;
}

/** A share in per cent. */
export function percent(share) {
  return `${short(share * 100)}%`;
}

/** `one text`, `2 texts`. */
export function count(number, noun) {
  return `${number.toLocaleString(LOCALE)} ${noun}${number === 1 ? "" : "s"}`;
}
