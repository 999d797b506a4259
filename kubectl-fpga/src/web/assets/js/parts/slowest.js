// The slowest request of the last minute, where the page takes traces.

import { el, link, setText } from "../dom.js";
import { micros, span } from "../format.js";
import { to } from "../route.js";
import { rows } from "../store.js";
import { now } from "../stream.js";
import { panel } from "./panel.js";

const MINUTE_MS = 60000;

export function slowest() {
  const took = el("b", "");
  const name = el("span", "muted");
  const ago = el("span", "faint");
  const anchor = link("", "", el("span", "line", el("span", "clip", took, " ", name), ago));
  const { element, note } = panel("Slowest request of the last minute", el("ul", "", el("li", "", anchor)));
  element.classList.add("slowest");
  note("");
  return {
    element,
    // Also when nothing has come: a minute ends by itself.
    draw() {
      const since = now() - MINUTE_MS;
      let found = null;
      for (const [id, row] of rows("traces")) {
        if (row.atMs >= since && row.tookUs > (found?.row.tookUs ?? -1)) found = { id, row };
      }
      element.hidden = !found;
      if (!found) return;
      anchor.href = to("trace", found.id);
      setText(took, micros(found.row.tookUs));
      setText(name, found.row.function);
      setText(ago, span(now() - found.row.atMs));
    },
  };
}
