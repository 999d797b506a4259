// What happened a moment ago, as lines.

import { look } from "../colour.js";
import { el, keyed, link, setText } from "../dom.js";
import { span } from "../format.js";
import { to } from "../route.js";
import { rows } from "../store.js";
import { now } from "../stream.js";

// The last moments, the latest first, of which `wanted` says so.
export function lastMoments(count, wanted = () => true) {
  const found = [];
  const all = [...rows("moments")].sort(([a], [b]) => (a < b ? 1 : -1));
  for (const [key, moment] of all) {
    if (found.length === count) break;
    if (wanted(moment) && !isOver(moment)) found.push({ key, ...moment });
  }
  return found;
}

// Where a pod has its node, that it waited is no news.
function isOver(moment) {
  return moment.what === "waits" && rows("pods").get(moment.pod)?.node !== null;
}

export function moments() {
  return el("ul", "moments");
}

export function drawMoments(element, found) {
  keyed(element, found, (moment) => moment.key, make, (item) => item.tick());
}

export function tickMoments(element) {
  for (const item of element.children) item.tick();
}

function make(moment) {
  const [text, href] = said(moment);
  const ago = el("span", "faint");
  const item = el("li", "", link(href, "", el("span", "line", el("span", "clip", ...text), ago)));
  item.tick = () => setText(ago, span(now() - moment.atMs));
  return item;
}

function said(moment) {
  const board = () => to("node", moment.node, moment.board);
  const dot = (name, isGone) => el("i", `dot ${look(name).split(" ")[0]}${isGone ? " out" : ""}`);
  const place = () => el("span", "muted", ` on ${moment.node}${rows("nodes").get(moment.node)?.boards.length === 1 ? "" : `/${moment.board}`}`);
  switch (moment.what) {
    case "loaded": {
      const instead = moment.evicted ? [el("span", "muted", `, evicts ${moment.evicted}`)] : [];
      return [[dot(moment.bitstream), el("b", "", moment.bitstream), place(), ...instead], board()];
    }
    case "evicted":
      return [[dot(moment.bitstream, true), el("b", "", moment.bitstream), " evicted", place()], board()];
    case "health":
      return [[el("b", moment.isHealthy ? "good" : "bad", moment.isHealthy ? "healthy again" : "unhealthy"), place()], board()];
    default: {
      const words = { waits: " waits for a board", placed: ` → ${moment.node}`, gone: " has gone" };
      const [namespace, name] = moment.pod.split("/");
      return [[el("b", "", name), el("span", "muted", words[moment.what] ?? ` ${moment.what}`)], to("pod", namespace, name)];
    }
  }
}
