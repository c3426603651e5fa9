// Reads the metrics of the server, and what changed between two readings.

/** Return `Map(name -> [{labels, value}])` from the text format of Prometheus. */
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: parseLabels(labels), value: parseValue(value) });
  }
  return found;
}

/** Return the sum of the samples with these labels. */
export function sum(metrics, name, labels = {}) {
  return matching(metrics, name, labels).reduce((total, { value }) => total + value, 0);
}

/** Return the sums by the value of one label. */
export function sumBy(metrics, name, label) {
  const sums = new Map();
  for (const { labels, value } of metrics.get(name) || []) sums.set(labels[label], (sums.get(labels[label]) || 0) + value);
  return sums;
}

/** Return the increase of a counter between two readings. A counter that fell began again at 0. */
export function increase(before, after, name, labels = {}) {
  const [old, now] = [sum(before, name, labels), sum(after, name, labels)];
  return now < old ? now : now - old;
}

/** Return a quantile of a histogram's values between two readings, or `null` without values; as Prometheus does. */
export function quantile(before, after, name, share, labels = {}) {
  const [old, now] = [boundSums(before, name, labels), boundSums(after, name, labels)];
  const bounds = [...now.keys()].sort((one, other) => one - other);
  const counts = bounds.map((bound) => Math.max(0, now.get(bound) - (old.get(bound) || 0)));
  const total = counts.at(-1) || 0;
  if (!total) return null;
  const place = counts.findIndex((each) => each >= share * total);
  const [low, high] = [place ? bounds[place - 1] : 0, bounds[place]];
  if (high === Infinity) return low;
  const below = place ? counts[place - 1] : 0;
  return low + ((high - low) * (share * total - below)) / (counts[place] - below || 1);
}

function boundSums(metrics, name, labels) {
  const sums = new Map();
  for (const { labels: found, value } of matching(metrics, `${name}_bucket`, labels)) {
    const bound = parseValue(found.le);
    sums.set(bound, (sums.get(bound) || 0) + value);
  }
  return sums;
}

function matching(metrics, name, wanted) {
  const samples = metrics.get(name) || [];
  return samples.filter(({ labels }) => Object.entries(wanted).every(([label, value]) => labels[label] === value));
}

function parseLabels(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name] = value.replace(/\\(.)/g, (_, each) => (each === "n" ? "\n" : each));
  }
  return labels;
}

function parseValue(text) {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}
