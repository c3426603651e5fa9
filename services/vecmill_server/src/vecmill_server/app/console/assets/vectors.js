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

/**
 * Return the first two principal components of the rows, as pairs of coordinates.
 *
 * The eigenvectors of the Gram matrix of the centred rows, by power iteration with deflation. There are far fewer
 * rows than dimensions, so this matrix is smaller than the covariance matrix, and has the same eigenvalues.
 */
export function principalComponents(rows, iterations = 200) {
  const mean = new Float64Array(rows[0].length);
  for (const row of rows) row.forEach((value, index) => (mean[index] += value / rows.length));
  const centred = rows.map((row) => Float64Array.from(row, (value, index) => value - mean[index]));
  const gram = centred.map((row) => centred.map((other) => dot(row, other)));
  const axes = [];
  for (let axis = 0; axis < 2; axis += 1) {
    // Any start that is not orthogonal to the eigenvector; the same for equal texts, so that the map does not change.
    let vector = rows.map((_, index) => Math.sin(index + 1 + axis));
    let value = 0;
    for (let turn = 0; turn < iterations; turn += 1) {
      let next = gram.map((row) => dot(row, vector));
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

/** Return the ranks of the values: 0 for the largest. */
export function ranks(values) {
  const order = values.map((_, index) => index).sort((one, other) => values[other] - values[one]);
  const found = new Array(values.length);
  order.forEach((index, rank) => (found[index] = rank));
  return found;
}
