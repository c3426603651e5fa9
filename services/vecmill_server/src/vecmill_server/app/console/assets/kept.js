// Keeps what was typed and found for a reload of this tab. The browser forgets it with the tab.

import { BASE } from "./server.js";

const PREFIX = `vecmill-kept ${BASE.pathname} `;

/** Keep a value that JSON can carry. What the browser has no room for is not kept. */
export function keep(name, value) {
  try {
    sessionStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    sessionStorage.removeItem(PREFIX + name);
  }
}

/** Return a value that was kept, or `null`. */
export function readKept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

/** Forget one value. */
export function forget(name) {
  sessionStorage.removeItem(PREFIX + name);
}

/** Forget everything that was kept, and return the function that brings it back. The keys stay. */
export function forgetAll() {
  const kept = Object.entries({ ...sessionStorage }).filter(([name]) => name.startsWith(PREFIX));
  for (const [name] of kept) sessionStorage.removeItem(name);
  return () => {
    for (const [name, value] of kept) sessionStorage.setItem(name, value);
  };
}
