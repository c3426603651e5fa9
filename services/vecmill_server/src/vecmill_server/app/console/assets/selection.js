// The texts that a reader has chosen or searched, which all pictures of a result mark.

/**
 * Return a selection of texts, by their row numbers: none, one, or a pair.
 *
 * `onChange` calls its listener with the chosen rows and a set of those that a search has found, now and at each change.
 */
export function makeSelection() {
  const listeners = [];
  let chosen = [];
  let found = new Set();
  const tell = () => listeners.forEach((listener) => listener(chosen, found));
  return {
    choose(row, other = null) {
      chosen = [row, other].filter((each) => each !== null);
      tell();
    },
    find(rows) {
      found = new Set(rows);
      tell();
    },
    onChange(listener) {
      listeners.push(listener);
      listener(chosen, found);
    },
  };
}
