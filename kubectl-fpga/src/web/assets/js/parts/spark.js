// Use over time, as one path of bars.

import { svg } from "../dom.js";

const HEIGHT = 22;

export function spark() {
  const element = svg("svg", { class: "spark", preserveAspectRatio: "none", "aria-hidden": "true" });
  element.append(svg("path", { class: "base", d: "" }), svg("path", { d: "" }));
  return element;
}

// Draws shares in thousandths, oldest first; `full` is the share of a bar of full height.
export function drawSpark(element, shares, full = 1000) {
  const drawn = `${full}:${shares.join()}`;
  if (element.drawn === drawn) return;
  element.drawn = drawn;
  const width = Math.max(1, shares.length) * 4;
  element.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const bar = (share, index) => {
    const height = share > 0 ? Math.max(1.5, (Math.min(share, full) / full) * HEIGHT) : 0;
    return height > 0 ? `M${index * 4} ${HEIGHT}v${-height}h3v${height}z` : "";
  };
  element.firstChild.setAttribute("d", `M0 ${HEIGHT}h${width}v-1h${-width}z`);
  element.lastChild.setAttribute("d", shares.map(bar).join(""));
}
