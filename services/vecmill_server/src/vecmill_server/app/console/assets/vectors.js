// Arithmetic with embeddings: decoding, cosine similarity, neighbours and principal components.

/** Return the Float32Array in a base64 string of little-endian floats. */
export function decodeBase64(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

/** Return the dot product. */
export function dot(one, other) {
  let sum = 0;
  for (let index = 0; index < one.length; index += 1) sum += one[index] * other[index];
  return sum;
}

/** Return the mean of a list of numbers. */
export function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Return the cosine similarity, 0 for an embedding of zeros. */
export function cosine(one, other) {
  const scale = Math.sqrt(dot(one, one) * dot(other, other));
  return scale ? dot(one, other) / scale : 0;
}

/** Return the matrix of the cosines between the rows, n lists of n numbers. */
export function cosineMatrix(rows) {
  const lengths = rows.map((row) => Math.sqrt(dot(row, row)));
  const matrix = rows.map(() => new Array(rows.length));
  for (let one = 0; one < rows.length; one += 1) {
    for (let other = one; other < rows.length; other += 1) {
      const scale = lengths[one] * lengths[other];
      matrix[one][other] = matrix[other][one] = scale ? dot(rows[one], rows[other]) / scale : 0;
    }
  }
  return matrix;
}

/** Return the pairs of different rows as `{one, other, value}`, the nearest first. */
export function nearestPairs(matrix) {
  const pairs = [];
  for (let one = 0; one < matrix.length; one += 1) {
    for (let other = one + 1; other < matrix.length; other += 1) pairs.push({ one, other, value: matrix[one][other] });
  }
  return pairs.sort((first, second) => second.value - first.value);
}

/** Return for each row the other rows, the nearest first. */
export function neighbours(matrix) {
  return matrix.map((values, row) =>
    values
      .map((value, index) => ({ value, index }))
      .filter(({ index }) => index !== row)
      .sort((one, other) => other.value - one.value)
      .map(({ index }) => index),
  );
}

/** Return the `most` rows nearest to `row`, the nearest first; `values` are its similarities to all rows. */
export function nearestTo(values, row, most) {
  const others = Array.from(values, (_, index) => index).filter((index) => index !== row);
  return others.sort((one, other) => values[other] - values[one]).slice(0, most);
}

/**
 * Return the first two principal components of the rows, as pairs of coordinates.
 *
 * The eigenvectors of the Gram matrix of the centred rows, by power iteration with deflation. The matrix itself, of
 * thousands of rows, is not made: a product with it is one with the rows' transpose, and one with the rows.
 */
export function principalComponents(rows, iterations = 200) {
  const mean = new Float64Array(rows[0].length);
  for (const row of rows) row.forEach((value, index) => (mean[index] += value / rows.length));
  const centred = rows.map((row) => Float64Array.from(row, (value, index) => value - mean[index]));
  const multiply = (vector) => {
    const sum = new Float64Array(mean.length);
    centred.forEach((row, place) => {
      for (let index = 0; index < sum.length; index += 1) sum[index] += vector[place] * row[index];
    });
    return centred.map((row) => dot(row, sum));
  };
  const axes = [];
  for (let axis = 0; axis < 2; axis += 1) {
    // Any start that is not orthogonal to the eigenvector; the same for equal texts, so that the map does not change.
    let vector = rows.map((_, index) => Math.sin(index + 1 + axis));
    let value = 0;
    for (let turn = 0; turn < iterations; turn += 1) {
      let next = multiply(vector);
      for (const { vector: earlier } of axes) {
        const share = dot(next, earlier);
        next = next.map((each, index) => each - share * earlier[index]);
      }
      value = Math.sqrt(dot(next, next));
      if (value < 1e-12) break;
      vector = next.map((each) => each / value);
    }
    axes.push({ vector, value: value < 1e-12 ? 0 : value });
  }
  return rows.map((_, index) => axes.map(({ vector, value }) => vector[index] * Math.sqrt(value)));
}

/**
 * Return `count` groups of rows, lists of row numbers, the largest first; the first row of a group is its most typical.
 *
 * Average linkage: the two groups whose rows have the greatest mean similarity are joined until `count` are left.
 * `matrix` has the similarities, and `joins` is what `joinByAverage` returns for it.
 */
export function findGroups(matrix, count, joins = joinByAverage(matrix)) {
  const parents = matrix.map((_, row) => row);
  const rootOf = (row) => {
    while (parents[row] !== row) row = parents[row];
    return row;
  };
  for (const { one, other } of joins.slice(0, Math.max(0, matrix.length - count))) parents[rootOf(one)] = rootOf(other);
  const groups = new Map();
  matrix.forEach((_, row) => {
    const root = rootOf(row);
    groups.set(root, [...(groups.get(root) || []), row]);
  });
  const closeness = (rows, row) => rows.reduce((sum, other) => sum + matrix[row][other], 0);
  return [...groups.values()]
    .map((rows) => {
      const sums = new Map(rows.map((row) => [row, closeness(rows, row)]));
      return rows.sort((one, other) => sums.get(other) - sums.get(one));
    })
    .sort((one, other) => other.length - one.length);
}

/** Return all rows in an order in which those of a group follow each other, for any number of groups. */
export function orderByGroups(size, joins) {
  const members = new Map(Array.from({ length: size }, (_, row) => [row, [row]]));
  for (const { one, other } of joins) {
    const joined = [...members.get(one), ...members.get(other)];
    for (const row of joined) members.set(row, joined);
  }
  return size ? members.get(0) : [];
}

/**
 * Return the joins of average linkage, the most similar first: `{one, other, value}`, a row of each group and their
 * similarity. Found by chains of nearest neighbours (Murtagh, 1983), in the time of n² steps.
 */
export function joinByAverage(matrix) {
  const between = matrix.map((row) => Float64Array.from(row));
  const sizes = matrix.map(() => 1);
  const left = new Set(matrix.keys());
  const joins = [];
  let chain = [];
  while (left.size > 1) {
    if (!chain.length) chain = [left.values().next().value];
    const last = chain.at(-1);
    const before = chain.at(-2);
    let [nearest, value] = before === undefined ? [-1, -Infinity] : [before, between[last][before]];
    for (const row of left) if (row !== last && between[last][row] > value) [nearest, value] = [row, between[last][row]];
    if (nearest !== before) {
      chain.push(nearest);
      continue;
    }
    chain.splice(-2);
    joins.push({ one: last, other: before, value });
    left.delete(last);
    const size = sizes[last] + sizes[before];
    for (const row of left) {
      if (row === before) continue;
      const mean = (sizes[last] * between[last][row] + sizes[before] * between[before][row]) / size;
      between[before][row] = between[row][before] = mean;
    }
    sizes[before] = size;
  }
  return joins.sort((one, other) => other.value - one.value);
}

/** Return the most similar pairs of different rows, at most `count`, as `nearestPairs` does, without all pairs in memory. */
export function topPairs(matrix, count) {
  const pairs = [];
  let least = -Infinity;
  for (let one = 0; one < matrix.length; one += 1) {
    for (let other = one + 1; other < matrix.length; other += 1) {
      const value = matrix[one][other];
      if (pairs.length >= count && value <= least) continue;
      pairs.push({ one, other, value });
      if (pairs.length < 2 * count) continue;
      least = shorten(pairs, count);
    }
  }
  shorten(pairs, count);
  return pairs;
}

/** Keep the `count` most similar pairs, sorted, and return the similarity of the last. */
function shorten(pairs, count) {
  pairs.sort((one, other) => other.value - one.value);
  pairs.length = Math.min(pairs.length, count);
  return pairs.at(-1)?.value ?? -Infinity;
}

/** Return the ranks of the values: 0 for the largest. */
export function ranks(values) {
  const order = values.map((_, index) => index).sort((one, other) => values[other] - values[one]);
  const found = new Array(values.length);
  order.forEach((index, rank) => (found[index] = rank));
  return found;
}

/** Return at most `most` of the values, evenly from the first to the last. */
export function spread(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, place) => values[Math.floor((place * values.length) / most)]);
}
