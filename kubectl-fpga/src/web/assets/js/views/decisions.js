// The extender's last decisions: which pod went where, out of how many nodes, and why others were passed over.

import { el, link, setText } from "../dom.js";
import { matches } from "../filter.js";
import { clock, count, parts, span } from "../format.js";
import { reasonText } from "../reasons.js";
import { to } from "../route.js";
import { whyEmpty } from "../sources.js";
import { rows } from "../store.js";
import { now } from "../stream.js";
import { VirtualList } from "../virtual.js";

const ROW_PX = 40;

// The last decisions, the latest first.
export function lastDecisions(most) {
  const found = [...rows("decisions")].map(([key, decision]) => ({ key, decision, pod: rows("pods").get(key) }));
  found.sort((a, b) => b.decision.atMs - a.decision.atMs);
  return found.slice(0, most);
}

// Where the pod of a decision is, in words.
export function outcome({ decision, pod }) {
  if (pod?.node) return { text: `→ ${pod.node}`, className: "good" };
  if (decision.passed === 0) return { text: "no node fits", className: "warn" };
  return pod ? { text: "waits", className: "warn" } : { text: "has gone", className: "muted" };
}

// Why, in one line.
export function inShort({ decision }) {
  if (decision.problem) return decision.problem;
  const rejected = decision.candidates - decision.passed;
  const [best, next] = decision.best;
  const parts = [];
  if (best && next?.score === best.score) parts.push(`several are best with ${best.score}: kube-scheduler's own plugins chose`);
  else if (best) parts.push(`best ${best.node} with ${best.score}${next ? `, then ${next.node} with ${next.score}` : ""}`);
  else if (decision.passed === 1) parts.push("the only node that fits");
  if (rejected > 0) {
    const reasons = Object.entries(decision.rejections).sort((a, b) => b[1] - a[1]);
    const named = reasons.slice(0, 2).map(([reason, number]) => `${number} × ${reasonText(reason)}`);
    parts.push(`passed over: ${named.join(", ")}${reasons.length > 2 ? " …" : ""}`);
  }
  return parts.join("; ");
}

export function makeDecisionLine() {
  const name = el("b", "clip");
  const where = el("span", "");
  const ago = el("span", "faint");
  const why = el("span", "why");
  const anchor = link("", "", el("span", "line", el("span", "clip", name), where, ago), why);
  const line = el("li", "", anchor);
  Object.assign(line, { parts: { name, where, ago, why, anchor } });
  return line;
}

export function drawDecisionLine(line, found) {
  const { name, where, ago, why, anchor } = line.parts;
  anchor.href = to("pod", found.decision.namespace, found.decision.name);
  setText(name, found.decision.name);
  const { text, className } = outcome(found);
  setText(where, text);
  where.className = className;
  setText(why, inShort(found));
  line.tick = () => setText(ago, span(now() - found.decision.atMs));
  line.tick();
}

export function decisions(root) {
  const list = new VirtualList({
    height: ROW_PX,
    label: "Decisions",
    key: (item) => item.key,
    href: (item) => to("pod", item.decision.namespace, item.decision.name),
    make: () => link("", "decision-row", ...["faint", "clip", "clip", "clip", "clip muted"].map((name) => el("span", name))),
    fill: fillRow,
  });
  const head = el("div", "list-head decision-head", ...["Time", "Pod", "Bitstreams", "Outcome", "Why"].map((title) => el("span", "", title)));
  const note = el("p", "empty-note");
  const number = el("span", "muted");
  root.append(el("div", "tall", el("div", "title", el("h1", "", "Decisions"), number), el("section", "card", head, note, list.element)));
  return {
    update(changed) {
      if (changed && !["decisions", "pods", "filter", "sources"].some((table) => changed.has(table))) return;
      const all = lastDecisions(Infinity);
      const found = all.filter((item) => matches(() => [item.key, item.pod?.node ?? "", ...item.decision.bitstreams, inShort(item)]));
      setText(number, `the last ${count(all.length, "pod", "pods")}`);
      setText(note, whyEmpty("extender") ?? "No pod has been decided yet.");
      note.hidden = found.length > 0;
      list.show(found);
    },
    stop: () => list.stop(),
  };
}

function fillRow(row, item) {
  const [time, pod, bitstreams, where, why] = row.children;
  setText(time, clock(item.decision.atMs));
  const { namespace, name } = parts(item.key);
  if (pod.named !== item.key) {
    pod.replaceChildren(el("span", "muted", `${namespace}/`), el("b", "", name));
    pod.named = item.key;
  }
  setText(bitstreams, item.decision.bitstreams.join(", ") || "–");
  const { text, className } = outcome(item);
  setText(where, text);
  where.className = `clip ${className}`;
  const short = inShort(item);
  setText(why, short);
  why.title = short;
}
