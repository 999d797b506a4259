// A request: what each program did for it, from when to when.

import { el, keyed, link, setText } from "../dom.js";
import { clock, micros, parts } from "../format.js";
import { to } from "../route.js";
import { rows } from "../store.js";

const DEEPEST = 8;

export function oneTrace(root, [id]) {
  const crumb = link(to("functions"), "link", "Functions");
  const head = el("span", "muted");
  const title = el("h1", "", "A request");
  const list = el("ol", "waterfall");
  const note = el("p", "empty-note");
  root.append(el("div", "page", el("p", "crumbs", crumb), el("div", "title", title, head), el("section", "card box wide", note, list), el("p", "problem", id)));

  function update(changed) {
    if (changed && !changed.has("traces")) return;
    const row = rows("traces").get(id);
    // What was shown stays when the request is none of the slowest any more.
    setText(note, row || list.children.length > 0 ? "" : "This request is none of the slowest.");
    note.hidden = note.textContent === "";
    if (!row) return;
    const { namespace, name } = parts(row.function);
    setText(title, row.function);
    crumb.href = to("function", namespace, name);
    setText(crumb, name);
    setText(head, `took ${micros(row.tookUs)} at ${clock(row.atMs)}`);
    const from = Math.min(...row.spans.map((span) => span.startUs));
    const until = Math.max(...row.spans.map((span) => span.startUs + span.tookUs));
    keyed(list, inOrder(row.spans), ({ span }) => span.id, make, (item, { span, depth }) => draw(item, span, depth, from, Math.max(1, until - from)));
  }
  return { update };
}

// The spans as a tree, each after the one that caused it.
function inOrder(spans) {
  const ids = new Set(spans.map((span) => span.id));
  const below = Map.groupBy(spans, (span) => (ids.has(span.parent) && span.parent !== span.id ? span.parent : null));
  const found = [];
  const seen = new Set();
  const visit = (parent, depth) => {
    for (const span of below.get(parent) ?? []) {
      // Whoever sends spans may send circles and the same one twice.
      if (seen.has(span.id)) continue;
      seen.add(span.id);
      found.push({ span, depth: Math.min(depth, DEEPEST) });
      visit(span.id, depth + 1);
    }
  };
  visit(null, 0);
  return found;
}

function make() {
  return el("li", "", el("span", "clip"), el("span", "track", el("i", "")), el("span", "number"));
}

function draw(item, span, depth, from, whole) {
  const [name, track, took] = item.children;
  setText(name, span.name);
  name.style.paddingLeft = `${depth * 16}px`;
  const said = span.attributes.map(([key, value]) => `${key}: ${value}`);
  item.title = [span.service, ...said].join("\n");
  const bar = track.firstChild;
  const kind = { load: "load", kernel: "kernel", "wait for a slot": "wait" }[span.name] ?? "other";
  bar.className = `${kind}${span.isFailed ? " failed" : ""}`;
  bar.style.left = `${((span.startUs - from) / whole) * 100}%`;
  bar.style.width = `${(span.tookUs / whole) * 100}%`;
  setText(took, micros(span.tookUs));
}
