// The look of a bitstream: a hue and perhaps stripes, always the same for the same name.

const HUES = 7;

// Hashes by text: a mosaic asks for thousands at a time.
const hashes = new Map();
const MOST_HASHES = 4096;

function hash(text) {
  const known = hashes.get(text);
  if (known !== undefined) return known;
  if (hashes.size >= MOST_HASHES) hashes.clear();
  const value = compute(text);
  hashes.set(text, value);
  return value;
}

function compute(text) {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  return (value ^ (value >>> 12)) >>> 0;
}

// Classes of css/boards.css.
export function look(bitstream) {
  const value = hash(bitstream);
  return `hue-${value % HUES}${(value >>> 16) % 3 === 0 ? " striped" : ""}`;
}

// The colour itself, for canvases.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#c2b200"];
export function colour(bitstream) {
  return COLOURS[hash(bitstream) % HUES];
}
