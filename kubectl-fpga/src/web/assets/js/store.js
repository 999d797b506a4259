// The rows that the server sent, by table and key, and what follows from them alone.

const NAMES = ["sources", "nodes", "pods", "functions", "moments", "decisions", "traces"];

function empty() {
  return new Map(NAMES.map((name) => [name, new Map()]));
}

let tables = empty();
// Rows of a whole new state, until all of it has arrived: then it takes the place of the old one at once.
let arriving = null;
// Keys of pods by their node; those that wait have none.
let podsByNode = new Map();
// Grows whenever nodes or boards come or go.
let shape = 0;
const listeners = new Set();

export function rows(table) {
  return tables.get(table);
}

export function podsOf(node) {
  return podsByNode.get(node) ?? new Set();
}

export function waitingPods() {
  return podsOf(null);
}

// A number that differs from an earlier one if nodes or boards have come or gone since.
export function shapeOfNodes() {
  return shape;
}

// Calls `listener` with the names of the tables that have changed.
export function listen(listener) {
  listeners.add(listener);
}

export function apply(message) {
  const isFirst = NAMES.every((name) => tables.get(name).size === 0);
  if (message.reset) arriving = isFirst ? null : empty();
  const changed = new Set();
  const target = arriving ?? tables;
  for (const [table, key, row] of message.rows) {
    const of = target.get(table);
    // A server of a newer version may have tables that this page does not know.
    if (!of) continue;
    changed.add(table);
    const before = of.get(key);
    if (row === null) of.delete(key);
    else of.set(key, row);
    if (arriving) continue;
    if (table === "pods") move(key, before, row);
    if (table === "nodes" && !haveSameBoards(before, row)) shape += 1;
  }
  if (arriving) {
    if (message.more) return;
    tables = arriving;
    arriving = null;
    shape += 1;
    podsByNode = new Map();
    for (const [key, row] of tables.get("pods")) move(key, undefined, row);
    NAMES.forEach((name) => changed.add(name));
  }
  for (const listener of listeners) listener(changed);
}

function haveSameBoards(before, now) {
  if (!before || !now || before.boards.length !== now.boards.length) return false;
  return now.boards.every((board, at) => board.id === before.boards[at].id);
}

function move(key, before, now) {
  if (before) podsByNode.get(before.node)?.delete(key);
  if (!now) return;
  if (!podsByNode.has(now.node)) podsByNode.set(now.node, new Set());
  podsByNode.get(now.node).add(key);
}

// The pods that have a board: those to which the node plugin gave it, or all of the node where it has one board only.
export function podsOn(node, board) {
  const isOnly = tables.get("nodes").get(node)?.boards.length === 1;
  const found = [];
  for (const key of podsOf(node)) {
    const pod = tables.get("pods").get(key);
    if (pod && (pod.boards.length > 0 ? pod.boards.includes(board) : isOnly)) found.push([key, pod]);
  }
  return found;
}
