// The cluster: all boards with what is in their slots and for whom, who waits and why, and what has just happened.

import { el, keyed, link, setText } from "../dom.js";
import { isFiltered, matches } from "../filter.js";
import { count, percent } from "../format.js";
import { drawSlots, meter, slots, trouble } from "../parts/board.js";
import { figures } from "../parts/figures.js";
import { drawMoments, lastMoments, moments, tickMoments } from "../parts/moments.js";
import { drawMosaic, mosaic } from "../parts/mosaic.js";
import { panel } from "../parts/panel.js";
import { slowest } from "../parts/slowest.js";
import { drawSpark, spark } from "../parts/spark.js";
import { drawWaiting } from "../parts/waiting.js";
import { drawWhom, whom } from "../parts/whom.js";
import { to } from "../route.js";
import { whyEmpty } from "../sources.js";
import { podsOn, rows, shapeOfNodes } from "../store.js";
import { VirtualList } from "../virtual.js";
import { drawDecisionLine, makeDecisionLine, lastDecisions } from "./decisions.js";

// Up to so many boards are drawn tall; of more there is a mosaic, too.
const LARGE = 8;
const LARGE_PX = 108;
const ROOMY = 24;
const ROOMY_PX = 76;
const COMPACT_PX = 36;
// Of more nodes only the boards in sight are drawn at each change; what takes a look at all of them is drawn once a second.
const MANY = 500;

const ORDERS = {
  Board: null,
  Use: (a, b) => (b.board?.usage ?? -1) - (a.board?.usage ?? -1),
  Waiting: (a, b) => (b.board?.queued ?? -1) - (a.board?.queued ?? -1),
};

export function cluster(root) {
  let order = "Board";
  let wasDrawn = false;
  let items = [];
  let shape = -1;
  let isListOld = false;
  let isOverviewOld = false;
  let wasOverview = false;
  const numbers = figures();
  const list = new VirtualList({
    height: ROOMY_PX,
    label: "Boards",
    key: (item) => item.id,
    href: (item) => (item.board ? to("node", item.node, item.board.id) : to("node", item.node)),
    make: makeRow,
    fill: fillRow,
  });
  const overview = mosaic((item) => (location.hash = list.href(item)));
  const overviewBox = el("div", "mosaic-box", overview);
  const head = el("div", "board-head");
  const note = el("p", "empty-note");
  const boards = el("section", "boards card", head, overviewBox, note, list.element);
  for (const title of ["Board", "Slots", "Use", "Waiting", "For whom"]) {
    if (!(title in ORDERS)) {
      head.append(el("span", "", title));
      continue;
    }
    const button = el("button", "", title);
    if (title === "Waiting") button.className = "queue";
    button.addEventListener("click", () => {
      order = title;
      press();
      drawBoards();
    });
    head.append(button);
  }
  const press = () => {
    for (const button of head.querySelectorAll("button")) button.setAttribute("aria-pressed", button.textContent === order);
  };
  press();

  const waiting = panel("Waiting");
  const slow = slowest();
  const happening = panel("Just now", moments());
  const decided = panel("Last decisions", undefined, link(to("decisions"), "", "all"));
  root.append(el("div", "cluster", numbers.element, boards, el("aside", "aside", waiting.element, slow.element, happening.element, decided.element)));

  function drawBoards() {
    shape = shapeOfNodes();
    isListOld = false;
    items = boardsOf(rows("nodes"));
    // Boards are in the order of their names; where others are equal it stays.
    if (ORDERS[order]) items.sort(ORDERS[order]);
    const isRoomy = items.length <= ROOMY;
    boards.classList.toggle("large", items.length <= LARGE);
    boards.classList.toggle("compact", !isRoomy);
    overviewBox.hidden = isRoomy;
    setText(note, items.length > 0 ? "" : (whyEmpty("nodes") ?? (isFiltered() ? "No board matches the filter." : "No node has a board yet.")));
    note.hidden = items.length > 0;
    if (items.length > 0 && !wasDrawn) {
      wasDrawn = true;
      performance.mark("first-board");
    }
    list.show(items, items.length <= LARGE ? LARGE_PX : isRoomy ? ROOMY_PX : COMPACT_PX);
  }

  // Which boards are in the list, and in which order, follows from their values only where they are filtered or sorted.
  function updateBoards(isFilterNew) {
    const isDue = isFilterNew || shape !== shapeOfNodes() || rows("nodes").size <= MANY;
    if (isDue) drawBoards();
    else {
      isListOld ||= isFiltered() || ORDERS[order] !== null;
      list.draw();
    }
  }

  // What counts all boards.
  function drawOverview() {
    isOverviewOld = false;
    busiest = greatestShare(rows("nodes"));
    if (!overviewBox.hidden) drawMosaic(overview, items);
    numbers.draw();
    drawWaiting(waiting);
  }

  return {
    update(changed) {
      const has = (...tables) => changed === null || tables.some((table) => changed.has(table));
      if (has("nodes", "pods", "filter", "sources")) {
        updateBoards(has("filter", "sources"));
        isOverviewOld = true;
        if (rows("nodes").size <= MANY || !wasOverview || has("filter")) drawOverview();
        wasOverview = items.length > 0;
      }
      if (has("traces")) slow.draw();
      if (has("moments")) {
        const found = lastMoments(10);
        drawMoments(happening.list, found);
        happening.note(found.length > 0 ? "" : "Nothing has changed since this page's server started.");
      }
      if (has("decisions", "pods")) {
        const found = lastDecisions(6);
        keyed(decided.list, found, (item) => item.key, makeDecisionLine, drawDecisionLine);
        decided.note(found.length > 0 ? "" : (whyEmpty("extender") ?? "No pod has been decided yet."));
      }
    },
    tick() {
      if (isListOld) drawBoards();
      if (isOverviewOld) drawOverview();
      slow.draw();
      tickMoments(happening.list);
      for (const item of waiting.list.children) item.tick?.();
      for (const item of decided.list.children) item.tick?.();
    },
    stop() {
      list.stop();
    },
  };
}

// The greatest share of all trends, so that nodes can be compared where all of them do little.
let busiest = 1;

function greatestShare(nodes) {
  let greatest = 1;
  for (const { trend } of nodes.values()) for (const share of trend) greatest = Math.max(greatest, share);
  return greatest;
}

// A board of the list, or a node without boards. Its row is looked up when it is drawn, since the list is older; a node that
// has gone is drawn as it was, until the list is made anew in the next frame.
class Item {
  constructor(node, at, board, row) {
    this.node = node;
    this.at = at;
    this.id = board ? `${node}/${board.id}` : node;
    this.lastRow = row;
  }

  get row() {
    this.lastRow = rows("nodes").get(this.node) ?? this.lastRow;
    return this.lastRow;
  }

  get board() {
    return this.row.boards[this.at] ?? null;
  }
}

// The boards of all nodes that match the filter; a node without boards has an item of its own.
function boardsOf(nodes) {
  const items = [];
  for (const node of sortedNames(nodes)) {
    const row = nodes.get(node);
    const add = (board, at) => {
      const texts = () => [node, board?.id ?? "", board?.kind ?? "", ...(board?.slots ?? []).filter(Boolean), ...podsOn(node, board?.id).map(([key]) => key)];
      if (matches(texts)) items.push(new Item(node, at, board, row));
    };
    if (row.boards.length === 0) add(null, 0);
    row.boards.forEach(add);
  }
  return items;
}

const byName = new Intl.Collator("en", { numeric: true }).compare;
let names = [];

// To sort thousands of names takes long, so it is done only when they change.
function sortedNames(nodes) {
  if (names.length !== nodes.size || !names.every((name) => nodes.has(name))) names = [...nodes.keys()].sort(byName);
  return names;
}

function makeRow() {
  const name = el("b", "clip");
  const flag = el("span", "tag");
  const kind = el("span", "kind muted clip");
  const use = el("div", "use", meter(), el("span", "figure"), spark());
  const row = link("", "board-row", el("div", "name", el("div", "title-line", name, flag), kind), slots(), use, el("div", "queue"), whom());
  return row;
}

function fillRow(row, item, isSame) {
  const { node, board, row: found } = item;
  const [name, slotsOf, use, queue, who] = row.children;
  const [title, kind] = name.children;
  const [bold, flag] = title.children;
  setText(bold, found.boards.length > 1 ? `${node} / ${board.id}` : node);
  setText(kind, [found.boards.length > 1 ? "" : board?.id, board?.kind].filter(Boolean).join("  ·  "));
  const wrong = trouble(found, board);
  flag.hidden = !wrong;
  if (wrong) {
    setText(flag, wrong.text);
    flag.className = `tag ${wrong.className}`;
    flag.title = wrong.title;
  }
  row.classList.toggle("unhealthy", Boolean(board && !board.isHealthy));
  row.classList.toggle("stale", found.freshness !== "fresh");
  for (const part of [slotsOf, use, queue, who]) part.hidden = !board;
  if (!board) return;
  drawSlots(slotsOf, board, isSame);
  const [bar, figure, trend] = use.children;
  bar.draw(board.usage, board.reconfiguration);
  setText(figure, percent(board.usage));
  drawSpark(trend, found.trend, busiest);
  setText(queue, board.queued > 0 ? String(board.queued) : "–");
  queue.classList.toggle("some", board.queued > 0);
  queue.title = count(board.queued, "task waits for a slot", "tasks wait for a slot");
  drawWhom(who, podsOn(node, board.id));
}
