// Keeps what was typed and found for a reload of this tab. The browser forgets it with the tab.

import { BASE } from "./server.js";

// What JSON cannot carry, such as pictures. It is lost with a reload.
const here = new Map();

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

/** Keep a value of any kind until the page is left. */
export function keepHere(name, value) {
  here.set(name, value);
}

/** Return a value that `keepHere` kept, or `undefined`. */
export function readHere(name) {
  return here.get(name);
}

/** Forget one value. */
export function forget(name) {
  sessionStorage.removeItem(PREFIX + name);
}

/** Forget everything that was kept, and return the function that brings it back. The keys stay. */
export function forgetAll() {
  const kept = Object.entries({ ...sessionStorage }).filter(([name]) => name.startsWith(PREFIX));
  const keptHere = [...here];
  for (const [name] of kept) sessionStorage.removeItem(name);
  here.clear();
  return () => {
    for (const [name, value] of keptHere) here.set(name, value);
    for (const [name, value] of kept) sessionStorage.setItem(name, value);
  };
}
