// A node, or one board of it: its slots, its pods, and what happened there.

import { el, keyed, link, setText } from "../dom.js";
import { count, parts, percent, span } from "../format.js";
import { look } from "../colour.js";
import { drawSlots, meter, slots, trouble } from "../parts/board.js";
import { drawMoments, lastMoments, moments, tickMoments } from "../parts/moments.js";
import { drawSpark, spark } from "../parts/spark.js";
import { to } from "../route.js";
import { podsOf, podsOn, rows } from "../store.js";
import { now } from "../stream.js";

export function node(root, [name, only]) {
  const crumbs = el("p", "crumbs", link(to(""), "link", "Cluster"), ...(only ? [" / ", link(to("node", name), "link", name)] : []));
  const flag = el("span", "tag");
  const source = el("span", "muted");
  const cards = el("div", "grid");
  const trend = spark();
  const use = el("span", "muted");
  const useBox = el("section", "card box", el("h2", "", "Use of the node"), trend, use);
  const podRows = el("tbody", "");
  const podNote = el("p", "muted");
  const pods = el("section", "card box", el("h2", "", "Pods"), podTable(podRows), podNote);
  const happened = moments();
  const happenedNote = el("p", "muted");
  const happening = el("section", "card box", el("h2", "", "What happened here"), happenedNote, happened);
  const problem = el("p", "problem");
  const page = el("div", "page", crumbs, el("div", "title", el("h1", "", only ? `${name} / ${only}` : name), flag, source), problem, cards, el("div", "split", pods, el("aside", "", useBox, happening)));
  root.append(page);

  function update() {
    const row = rows("nodes").get(name);
    const wrong = row ? trouble(row) : { text: "unknown", title: "No such node is known", className: "warn" };
    flag.hidden = !wrong;
    if (wrong) {
      setText(flag, wrong.text);
      flag.className = `tag ${wrong.className}`;
      flag.title = wrong.title;
    }
    setText(problem, row?.problem ?? "");
    const boards = (row?.boards ?? []).filter((board) => !only || board.id === only);
    keyed(cards, boards, (board) => board.id, () => boardCard(name), (card, board) => card.draw(row, board));
    const most = Math.max(1, ...(row?.trend ?? []));
    drawSpark(trend, row?.trend ?? [], most);
    trend.setAttribute("aria-label", `at most ${percent(most)}`);
    setText(use, row ? `${percent(row.usage)} of the slots' time in the last ${span(row.windowMs)}, of it ${percent(row.reconfiguration)} reconfiguring` : "");
    const found = only ? podsOn(name, only) : [...podsOf(name)].map((key) => [key, rows("pods").get(key)]).filter(([, pod]) => pod);
    found.sort(([a], [b]) => (a < b ? -1 : 1));
    keyed(podRows, found, ([key]) => key, podRow, (element, [key, pod]) => element.draw(key, pod));
    setText(podNote, found.length > 0 ? "" : "No pod has a board here.");
    const here = lastMoments(12, (moment) => moment.node === name && (!only || moment.board === only || moment.board === undefined));
    drawMoments(happened, here);
    setText(happenedNote, here.length > 0 ? "" : "Nothing has changed since this page's server started.");
    tick();
  }

  function tick() {
    const row = rows("nodes").get(name);
    const labels = (row?.labels ?? []).filter(Boolean).join(" / ");
    const age = row?.measuredAtMs ? `measured ${span(now() - row.measuredAtMs)} ago` : "";
    setText(source, [age, row?.source && `by ${row.source}`, labels].filter(Boolean).join("  ·  "));
    tickMoments(happened);
  }
  return { update, tick };
}

// A board as a card, with its slots large.
function boardCard(node) {
  const title = link("", "", "");
  const kind = el("span", "muted");
  const flag = el("span", "tag");
  const slotsOf = slots();
  const bar = meter();
  const facts = el("dl", "facts");
  const card = el("section", "card box board-card", el("div", "", el("b", "", title), "  ", kind, " ", flag), slotsOf, bar, facts);
  let isSame = false;
  card.draw = (row, board) => {
    title.href = to("node", node, board.id);
    setText(title, board.id);
    setText(kind, board.kind);
    const wrong = trouble(row, board);
    flag.hidden = !wrong;
    if (wrong) {
      setText(flag, wrong.text);
      flag.className = `tag ${wrong.className}`;
    }
    card.classList.toggle("unhealthy", !board.isHealthy);
    card.classList.toggle("stale", row.freshness !== "fresh");
    drawSlots(slotsOf, board, isSame);
    isSame = true;
    bar.draw(board.usage, board.reconfiguration);
    const told = [
      ["Use", `${percent(board.usage)}, of it ${percent(board.reconfiguration)} reconfiguring`],
      ["Waiting", count(board.queued, "task", "tasks")],
      ["Containers", board.instances ? `${board.instances[0]} of ${board.instances[1]}` : "no node plugin counts them"],
      ["Reconfigured", board.isWhole ? "as a whole" : "slot by slot"],
    ];
    keyed(facts, told.flatMap(([term, text]) => [{ id: `${term} term`, tag: "dt", text: term }, { id: term, tag: "dd", text }]), (fact) => fact.id, (fact) => el(fact.tag, ""), (element, fact) => setText(element, fact.text));
  };
  return card;
}

function podTable(body) {
  const head = el("tr", "", ...["Pod", "Namespace", "Bitstreams", "Boards", "State"].map((title) => el("th", "", title)));
  return el("table", "", el("thead", "", head), body);
}

function podRow() {
  const cells = [0, 1, 2, 3, 4].map(() => el("td", ""));
  const row = el("tr", "", ...cells);
  const name = link("", "link", "");
  cells[0].append(name);
  row.draw = (key, pod) => {
    const { namespace, name: text } = parts(key);
    name.href = to("pod", namespace, text);
    setText(name, text);
    setText(cells[1], namespace);
    keyed(cells[2], pod.bitstreams, (bitstream) => bitstream, (bitstream) => el("span", "", el("i", `dot ${look(bitstream).split(" ")[0]}`), `${bitstream} `), () => {});
    setText(cells[3], pod.boards.join(", ") || "–");
    const state = pod.isEnding ? "ending" : pod.isReady ? "ready" : (pod.waits ?? "starting");
    setText(cells[4], state);
    cells[4].className = pod.isReady && !pod.isEnding ? "good" : "warn";
  };
  return row;
}
