// A pod: why it went where it went, or why it waits. Each term of each node, and each node that was passed over.

import { look } from "../colour.js";
import { el, link, setText } from "../dom.js";
import { clock, count, span } from "../format.js";
import { reasonText } from "../reasons.js";
import { to } from "../route.js";
import { rows } from "../store.js";
import { ask } from "../stream.js";

const RETRY_MS = 3000;
const MOST_ROWS = 60;
const HUES = { locality: "hue-2", usage: "hue-0", reconfiguration: "hue-1", freeSlots: "hue-5", queue: "hue-4", loaded: "hue-6" };
const SIGNALS = {
  locality: "the bitstream is there",
  usage: "little use",
  reconfiguration: "little reconfiguring",
  freeSlots: "empty slots",
  queue: "few waiting tasks",
  loaded: "how much is loaded",
};

export function pod(root, [namespace, name]) {
  const key = `${namespace}/${name}`;
  const crumbs = el("p", "crumbs", link(to("decisions"), "link", "Decisions"));
  const state = el("span", "tag");
  const body = el("div", "grid");
  const page = el("div", "page", crumbs, el("div", "title", el("h1", "", key), state), body);
  root.append(page);
  let explained = null;
  let problem = "";
  let shownAt = -1;
  const stopped = new AbortController();

  async function refresh() {
    try {
      explained = await ask({ view: "explain", pod: key }, stopped.signal);
      problem = "";
    } catch (error) {
      if (stopped.signal.aborted) return;
      problem = error.message;
      setTimeout(refresh, RETRY_MS);
    }
    draw();
  }

  function draw() {
    const row = rows("pods").get(key);
    const [text, className] = row?.isEnding ? ["ending", "muted"] : row?.isReady ? ["ready", "good"] : row?.node ? ["starting", "warn"] : row ? ["waits", "warn"] : ["has gone", "muted"];
    setText(state, text);
    state.className = `tag ${className}`;
    body.replaceChildren(about(row, explained), ...(explained ? decision(explained, row) : [el("section", "card box wide", el("h2", "", "Why"), el("p", "problem", problem || "Asking the extender …"))]));
  }

  refresh();
  return {
    update(changed) {
      const at = rows("decisions").get(key)?.atMs ?? 0;
      if (shownAt >= 0 && at !== shownAt) refresh();
      shownAt = at;
      if (changed === null || changed.has("pods")) {
        const drawn = JSON.stringify(rows("pods").get(key) ?? null);
        if (changed === null || drawn !== page.drawn) draw();
        page.drawn = drawn;
      }
    },
    stop: () => stopped.abort(),
  };
}

function about(row, explained) {
  const list = el("dl", "facts");
  const fact = (term, ...text) => list.append(el("dt", "", term), el("dd", "", ...text));
  const node = row?.node ?? explained?.node;
  fact("Node", node ? link(to("node", node), "link", node) : "none yet");
  fact("Boards", row?.boards.join(", ") || explained?.boards || "–");
  for (const reason of (explained?.boardsReason ?? "").split("\n").filter(Boolean)) fact("", el("span", "muted", reason));
  const bitstreams = (row?.bitstreams ?? []).map((bitstream) => el("span", "", el("i", `dot ${look(bitstream).split(" ")[0]}`), `${bitstream} `));
  fact("Bitstreams", ...(bitstreams.length > 0 ? bitstreams : ["–"]));
  fact("Made by", row?.owner ?? "–");
  if (row?.waits) fact("Waits", el("span", "warn", row.waits));
  return el("section", "card box wide", list);
}

function decision(told, row) {
  const { explanation } = told;
  const node = row?.node ?? told.node;
  const boxes = [];
  const weights = Object.entries(explanation.rules.weights ?? {}).filter(([, weight]) => weight > 0);
  const scores = [...(explanation.prioritize?.nodes ?? [])].sort((a, b) => b.score - a.score || (a.node < b.node ? -1 : 1));
  const at = Math.max(explanation.filter?.atMs ?? 0, explanation.prioritize?.atMs ?? 0);
  const sentences = verdict(explanation, scores, weights, node).map((text) => el("p", "verdict", text));
  boxes.push(el("section", "card box wide", el("h2", "", "Why"), ...sentences, el("p", "muted", `Decided at ${clock(at)} by ${told.replica}.`)));
  if (scores.length > 0) boxes.push(terms(scores, weights, node));
  if (explanation.filter) boxes.push(...passedOver(explanation.filter));
  return boxes;
}

// The decision in sentences.
function verdict(explanation, scores, weights, node) {
  if (explanation.problem) return [`What the pod asks for can't be understood: ${explanation.problem}`];
  const filtered = explanation.filter?.nodes ?? [];
  const passed = filtered.filter((row) => !row.rejection).length;
  const lines = [`${passed} of ${count(filtered.length, "node", "nodes")} fit.`];
  if (passed === 0) return [...lines, "So the pod waits until one of them does."];
  if (scores.length === 0) return [...lines, "kube-scheduler asked for no scores, as it does where one node is left."];
  const best = scores[0].score;
  const bests = scores.filter((row) => row.score === best);
  const next = scores.find((row) => row.score < best);
  const most = explanation.rules.maxScore ?? explanation.rules.max_score ?? 10;
  if (!next) lines.push(`All have the same score, ${best} of ${most}: kube-scheduler's own plugins decided.`);
  else if (bests.length > 1) lines.push(`${bests.length} nodes are best with ${best} of ${most}; among them kube-scheduler's own plugins decided.`);
  else lines.push(`${bests[0].node} is best with ${best} of ${most}, before ${next.node} with ${next.score}: ${lead(bests[0], next, weights)}.`);
  const here = scores.find((row) => row.node === node);
  if (here && here.score < best) lines.push(`The pod is on ${node} with ${here.score}: kube-scheduler's own plugins outvoted the extender.`);
  else if (node && !here) lines.push(`The pod is on ${node}, which was no candidate of this decision.`);
  return lines;
}

// By which signals one node is ahead of another.
function lead(best, next, weights) {
  const ahead = weights
    .map(([signal, weight]) => ({ signal, by: weight * ((best[signal]?.value ?? 0) - (next[signal]?.value ?? 0)) }))
    .filter(({ by }) => by > 0.001)
    .sort((a, b) => b.by - a.by);
  return ahead.length > 0 ? ahead.map(({ signal }) => SIGNALS[signal] ?? signal).join(", then ") : "by the last digit";
}

function terms(scores, weights, node) {
  const sum = weights.reduce((sum, [, weight]) => sum + weight, 0) || 1;
  const titles = ["Node", "Score", "", ...weights.map(([signal, weight]) => `${signal} × ${weight}`), "Measured", "Expected", "State"];
  const head = el("tr", "", ...titles.map((title, index) => el("th", index === 1 ? "number" : "", title)));
  const body = el("tbody", "");
  const shown = scores.slice(0, MOST_ROWS);
  const here = scores.find((row) => row.node === node);
  if (here && !shown.includes(here)) shown.push(here);
  for (const row of shown) {
    const bar = el("div", "terms");
    for (const [signal, weight] of weights) {
      const part = el("i", HUES[signal] ?? "hue-0");
      part.style.width = `${((weight * (row[signal]?.value ?? 0)) / sum) * 100}%`;
      part.title = `${signal} ${(row[signal]?.value ?? 0).toFixed(2)} × ${weight}`;
      bar.append(part);
    }
    const values = weights.map(([signal]) => {
      const term = row[signal];
      const basis = term && term.basis !== "measured" ? ` ${term.basis}` : "";
      return el("td", basis ? "warn" : "", term ? `${term.value.toFixed(2)}${basis}` : "–");
    });
    const { measured, expected } = row;
    const notes = [row.freshness === "fresh" ? `${row.source}, ${span(measured?.ageMs ?? 0)} old` : `state ${row.freshness}`, row.capped === "yes" ? "lowered below the best fresh node" : ""];
    const line = el("tr", row.node === node ? "chosen" : "",
      el("td", "", link(to("node", row.node), "link", row.node), row.node === node ? el("b", "good", "  ← here") : null),
      el("td", "number", el("b", "", String(row.score))),
      el("td", "", bar),
      ...values,
      el("td", "muted", measured ? `${span(measured.usageMs)} used, ${span(measured.reconfigurationMs)} reconf.${measured.slots ? `, ${measured.slots} slots` : ""}` : "–"),
      el("td", "muted", expected ? `+${span(expected.usageMs)} of ${expected.pods.toFixed(1)} pods` : "–"),
      el("td", row.freshness === "fresh" ? "muted" : "warn", notes.filter(Boolean).join(", ")));
    body.append(line);
  }
  const legend = el("div", "legend", ...weights.map(([signal]) => el("span", "", el("i", `dot ${HUES[signal] ?? "hue-0"}`), SIGNALS[signal] ?? signal)));
  const more = scores.length - shown.length;
  return el("section", "card box wide", el("h2", "", "The scores of the nodes that fit"), el("table", "", el("thead", "", head), body), more > 0 ? el("p", "muted", `and ${count(more, "node", "nodes")} with less`) : null, legend);
}

function passedOver(filter) {
  const reasons = new Map();
  for (const row of filter.nodes) {
    if (!row.rejection) continue;
    if (!reasons.has(row.rejection)) reasons.set(row.rejection, []);
    reasons.get(row.rejection).push(row.node);
  }
  if (reasons.size === 0) return [];
  const items = [...reasons].sort((a, b) => b[1].length - a[1].length).map(([reason, nodes]) => {
    const named = nodes.slice(0, 30).flatMap((node, index) => [index ? ", " : "", link(to("node", node), "link", node)]);
    const more = nodes.length > 30 ? ` and ${nodes.length - 30} more` : "";
    const cordons = filter.nodes.filter((row) => row.rejection === reason).flatMap((row) => (row.cordons ?? []).map((text) => `${row.node}: ${text}`));
    const texts = cordons.slice(0, 5).map((text) => el("div", "muted", text));
    return el("li", "", el("span", "count", String(nodes.length)), el("div", "", el("div", "", reasonText(reason)), el("div", "muted", ...named, more), ...texts));
  });
  return [el("section", "card box wide", el("h2", "", "Passed over"), el("ul", "reasons", ...items))];
}
