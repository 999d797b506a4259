// All boards at a glance: a cell for each slot, coloured by its bitstream.

import { colour } from "../colour.js";
import { el } from "../dom.js";

const SHORTEST = 200;
const MOST_PIXELS = 110;

// `open(item)` is called for the board that is clicked.
export function mosaic(open) {
  const element = el("canvas", "mosaic");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", "All boards, coloured by the bitstreams in their slots");
  element.addEventListener("click", (event) => {
    const { columns, size, items } = element.grid ?? {};
    const item = items?.[Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size)];
    if (item) open(item);
  });
  return element;
}

// Draws boards `{node, board, row}`; the cells are as large as fit.
export function drawMosaic(element, items) {
  const width = element.parentElement.clientWidth - 28;
  if (width < SHORTEST) return;
  let size = 18;
  while (size > 4 && Math.ceil(items.length / Math.floor(width / size)) * size > MOST_PIXELS) size -= 1;
  const columns = Math.floor(width / size);
  const height = Math.max(size, Math.ceil(items.length / columns) * size);
  const scale = devicePixelRatio || 1;
  if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    element.style.height = `${height}px`;
  }
  element.grid = { columns, size, items };
  const context = element.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(element);
  const empty = style.getPropertyValue("--strong-line");
  const side = size - 1;
  items.forEach(({ board, row }, index) => {
    const x = (index % columns) * size;
    const y = Math.floor(index / columns) * size;
    context.globalAlpha = row.freshness === "fresh" ? 1 : 0.35;
    if (!board || !board.isHealthy) {
      context.fillStyle = "#b3261e";
      context.fillRect(x, y, side, side);
      return;
    }
    const shown = board.slots.slice(0, side);
    const part = side / Math.max(1, shown.length);
    shown.forEach((bitstream, slot) => {
      context.fillStyle = bitstream ? colour(bitstream) : empty;
      context.fillRect(x + slot * part, y, part, side);
    });
  });
}
