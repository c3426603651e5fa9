// Reads the metrics of the server, and what changed between two readings.

const STARTS = "process_start_time_seconds";

/** Return `Map(name -> [{labels, text, value}])`, `text` being the labels as they are written, from the text format of Prometheus. */
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const [, name, labels = "", value] = match;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: parseLabels(labels), text: labels, value: parseValue(value) });
  }
  return found;
}

/**
 * Return `[{ageS, metrics}]` of a history, the oldest reading first.
 *
 * The first reading has all series, the others those that changed since; those with the value "gone" are no more.
 */
export function readHistory(history) {
  const series = new Map();
  return history.map(({ age_s: ageS, metrics }) => {
    for (const line of metrics.split("\n")) {
      const end = line.lastIndexOf(" ");
      if (line.slice(end) === " gone") series.delete(line.slice(0, end));
      else if (end > 0) series.set(line.slice(0, end), line.slice(end));
    }
    return { ageS, metrics: parseMetrics([...series].map(([name, value]) => name + value).join("\n")) };
  });
}

/** Return the sum of all samples of a name. */
export function sum(metrics, name) {
  return samplesOf(metrics, name).reduce((total, { value }) => total + value, 0);
}

/** Return the sums by the value of one label. */
export function sumBy(metrics, name, label) {
  const sums = new Map();
  for (const { labels, value } of samplesOf(metrics, name)) sums.set(labels[label], (sums.get(labels[label]) || 0) + value);
  return sums;
}

/** Return the increase of a counter between two readings. A counter that fell began again at 0. */
export function increase(before, after, name, isWanted = () => true) {
  return increases(before, after, name, isWanted).reduce((total, [, value]) => total + value, 0);
}

/** Return whether a process of the server is another one than at the first of two readings. */
export function isRestarted(before, after) {
  const starts = new Map(samplesOf(before, STARTS).map(({ text, value }) => [text, value]));
  return samplesOf(after, STARTS).some(({ text, value }) => starts.has(text) && starts.get(text) !== value);
}

/** Return a quantile of a histogram's values between two readings, or `null` without values; as Prometheus does. */
export function quantile(before, after, name, share, isWanted = () => true) {
  const sums = new Map();
  for (const [labels, value] of increases(before, after, `${name}_bucket`, isWanted)) {
    const bound = parseValue(labels.le);
    sums.set(bound, (sums.get(bound) || 0) + value);
  }
  const bounds = [...sums.keys()].sort((one, other) => one - other);
  const counts = bounds.map((bound) => sums.get(bound));
  const total = counts.at(-1) || 0;
  if (!total) return null;
  const place = counts.findIndex((each) => each >= share * total);
  const [low, high] = [place ? bounds[place - 1] : 0, bounds[place]];
  if (high === Infinity) return low;
  const below = place ? counts[place - 1] : 0;
  return low + ((high - low) * (share * total - below)) / (counts[place] - below || 1);
}

/**
 * Return `[labels, increase]` of each series.
 *
 * Of several processes that serve one port, some may be missing in a reading. What they had counted before
 * is no increase.
 */
function increases(before, after, name, isWanted) {
  const old = new Map(samplesOf(before, name).map(({ text, value }) => [text, value]));
  const processes = new Set(samplesOf(before, STARTS).map(({ labels }) => labels.process));
  return samplesOf(after, name)
    .filter(({ labels }) => isWanted(labels) && (!labels.process || processes.has(labels.process)))
    .map(({ labels, text, value }) => {
      const at = old.get(text) || 0;
      return [labels, value < at ? value : value - at];
    });
}

function samplesOf(metrics, name) {
  return metrics.get(name) || [];
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
