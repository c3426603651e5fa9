// Pictures that people drop or choose: which files are some, small drawings of them, and requests of a bounded size.

export const PICTURE_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
export const FORMATS = "PNG, JPEG, WebP or GIF";

// The first bytes of each format, and its bytes from the ninth on. The server decides by them too.
const SIGNATURES = [
  ["\x89PNG\r\n\x1a\n", ""],
  ["\xff\xd8\xff", ""],
  ["RIFF", "WEBP"],
  ["GIF8", ""],
];
const HEAD_BYTES = 12;
const SIDE_PX = 112;
// Larger files are drawn as an empty frame: to decode them takes gigabytes, and most servers refuse them.
const MOST_DRAWN_BYTES = 40e6;
// Of one request, so that the progress is seen.
const PICTURES_IN_REQUEST = 16;
const BYTES_IN_REQUEST = 8e6;

let lastId = 0;

/** Return whether a file that begins with these bytes is a picture that the server may read. */
export function isPicture(bytes) {
  const head = String.fromCharCode(...bytes.slice(0, HEAD_BYTES));
  return SIGNATURES.some(([first, later]) => head.startsWith(first) && head.startsWith(later, 8));
}

/** Return `{id, name, file, drawing}` of a file, `null` if it is no picture. `drawing` is a small square canvas. */
export async function readPicture(file) {
  const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  if (!isPicture(head)) return null;
  lastId += 1;
  return { id: lastId, name: file.webkitRelativePath || file.path || file.name, file, drawing: await draw(file) };
}

/** Return the drawing of a picture as a new element, which a screen reader calls `label`; without one it is left out. */
export function thumbnail(picture, label = null) {
  const copy = square();
  copy.getContext("2d").drawImage(picture.drawing, 0, 0);
  if (label === null) copy.setAttribute("aria-hidden", "true");
  else {
    copy.setAttribute("role", "img");
    copy.setAttribute("aria-label", label);
  }
  return copy;
}

/** Return the ranges, pairs of a start and an end, of the requests for pictures of these sizes in bytes. */
export function cutRequests(sizes) {
  const ranges = [];
  let [start, held] = [0, 0];
  sizes.forEach((size, place) => {
    if (place > start && (place - start >= PICTURES_IN_REQUEST || held + size > BYTES_IN_REQUEST)) {
      ranges.push([start, place]);
      [start, held] = [place, 0];
    }
    held += size;
  });
  return sizes.length ? [...ranges, [start, sizes.length]] : [];
}

/** Return a file as a data URI, as the server takes it. */
export function toDataUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read any more: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
}

/** Return the files that were dropped, also those in folders, sorted by their paths. */
export async function readDropped(transfer) {
  // The list is empty after the event.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const found = await Promise.all(entries.map(listFiles));
  return found.flat();
}

async function listFiles(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    file.path = entry.fullPath.replace(/^\//, "");
    return [file];
  }
  const reader = entry.createReader();
  const files = [];
  // A reader returns some entries at a time.
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) break;
    for (const each of entries.filter(({ name }) => !name.startsWith("."))) files.push(...(await listFiles(each)));
  }
  return files.sort((one, other) => (one.path < other.path ? -1 : 1));
}

/** Draw the middle of a picture, upright as the server turns it. Nothing is loaded by an address, which the page's policy forbids. */
async function draw(file) {
  const canvas = square();
  if (file.size > MOST_DRAWN_BYTES) return canvas;
  try {
    const bitmap = await createImageBitmap(file);
    const side = Math.min(bitmap.width, bitmap.height);
    const [left, top] = [(bitmap.width - side) / 2, (bitmap.height - side) / 2];
    canvas.getContext("2d").drawImage(bitmap, left, top, side, side, 0, 0, SIDE_PX, SIDE_PX);
    bitmap.close();
  } catch {
    // The server says what is wrong with it.
  }
  return canvas;
}

function square() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SIDE_PX, SIDE_PX];
  return canvas;
}
