// The pool: the slots that boards lend, who has them, the jobs that wait and why, and the goals of groups against what is
// forecast of them.

import { look } from "../colour.js";
import { el, keyed, link, setText } from "../dom.js";
import { matches } from "../filter.js";
import { count, span } from "../format.js";
import { to } from "../route.js";
import { ask, now } from "../stream.js";
import { VirtualList } from "../virtual.js";

const ROW_PX = 40;
const PERIOD_MS = 1000;
// States of a slot in which somebody has it.
const TAKEN = new Set(["preparing", "reserved", "busy", "idle", "draining"]);

export function pool(root) {
  const head = el("span", "muted");
  const note = el("p", "problem");
  const classes = el("div", "classes");
  const tenants = el("tbody", "");
  const groups = el("tbody", "");
  const boards = el("div", "grid");
  const list = new VirtualList({
    height: ROW_PX,
    label: "Waiting jobs",
    key: (item) => item.job,
    href: () => to("pool"),
    make: () => link("", "job-row", ...["clip", "clip", "queue", "queue", "queue", "clip muted"].map((name) => el("span", name))),
    fill: fillJob,
  });
  const headings = (...titles) => el("thead", "", el("tr", "", ...titles.map((title) => el("th", "", title))));
  const jobHead = el("div", "list-head job-head", ...["Job of", "Accelerator", "Bytes", "Waits", "Ahead", "Why"].map((title, index) => el("span", index > 1 && index < 5 ? "queue" : "", title)));
  const jobs = el("section", "card jobs wide", el("div", "box", el("h2", "", "Waiting jobs")), jobHead, list.element);
  const box = (title, ...children) => el("section", "card box", el("h2", "", title), ...children);
  root.append(el("div", "page",
    el("div", "title", el("h1", "", "Pool"), head), note,
    el("div", "grid",
      box("Slots", classes),
      box("Namespaces", el("table", "", headings("Namespace", "Slots", "Waiting jobs"), tenants)),
      el("section", "card box wide", el("h2", "", "Goals against forecasts"), el("table", "", headings("Namespace", "Goal", "Done", "Forecast", "", "Slots", "Waiting"), groups)),
      jobs,
      el("section", "card box wide", el("h2", "", "Lent slots"), boards))));

  const stopped = new AbortController();
  let found = null;
  async function refresh() {
    try {
      found = await ask({ view: "pool" }, stopped.signal);
      setText(note, "");
      draw();
    } catch (error) {
      if (stopped.signal.aborted) return;
      setText(note, error.message);
    }
    if (!stopped.signal.aborted) setTimeout(refresh, PERIOD_MS);
  }

  function draw() {
    if (!found) return;
    const taken = found.slots.filter((slot) => TAKEN.has(slot.state)).length;
    setText(head, `${taken} of ${count(found.slots.length, "lent slot", "lent slots")} in use, ${count(found.waiting, "job waits", "jobs wait")}`);
    keyed(classes, found.classes, (of) => `${of.kind} ${of.region}`, makeClass, (node, of) => node.draw(of));
    keyed(tenants, found.namespaces, (of) => of.namespace, () => cells(3), (row, of) => fill(row, [of.namespace, of.held, of.waiting]));
    keyed(groups, found.groups, (group) => group.group, () => cells(7), drawGroup);
    keyed(boards, lending(found.slots), (board) => board.id, makeBoard, (node, board) => node.draw(board));
    list.show(found.jobs.filter((job) => matches(() => [job.namespace, job.accelerator, job.reason, job.node])));
    list.element.style.height = `${Math.min(8, Math.max(1, list.items.length)) * ROW_PX}px`;
  }

  refresh();
  return {
    update(changed) {
      if (changed?.has("filter")) draw();
    },
    tick: () => list.draw(),
    stop() {
      stopped.abort();
      list.stop();
    },
  };
}

function cells(number) {
  return el("tr", "", ...Array.from({ length: number }, () => el("td", "")));
}

function fill(row, texts) {
  texts.forEach((text, index) => setText(row.children[index], String(text)));
}

// A kind of slots with the shares that jobs and groups have.
function makeClass() {
  const [name, text] = [el("b", ""), el("span", "muted")];
  const [ofJobs, ofGroups] = [el("i", "basis-resident"), el("i", "basis-in_flight")];
  const node = el("div", "", el("div", "line", name, text), el("div", "share", ofJobs, ofGroups));
  node.draw = ({ kind, region, slots, jobs, groups }) => {
    setText(name, region ? `${kind}, region ${region}` : kind);
    setText(text, `${jobs} by jobs, ${groups} by groups, ${slots - jobs - groups} free of ${slots}`);
    ofJobs.style.width = `${(jobs / Math.max(1, slots)) * 100}%`;
    ofGroups.style.width = `${(groups / Math.max(1, slots)) * 100}%`;
  };
  return node;
}

const OUTLOOKS = { kept: ["will be kept", "good"], missed: ["will be missed", "bad"], unknown: ["not known yet", "muted"] };

function drawGroup(row, group) {
  const { goal, forecast } = group;
  const aim = goal?.withinMs !== undefined ? `${goal.actions} actions in ${span(goal.withinMs)}, ${span(group.leftMs)} left` : goal ? `${goal.actionsPerHour} actions an hour` : "–";
  const hope = forecast?.doneInMs !== undefined ? `done in ${span(forecast.doneInMs)}` : forecast ? `${forecast.actionsPerHour} actions an hour` : "–";
  const [words, className] = OUTLOOKS[group.outlook] ?? [group.outlook, ""];
  fill(row, [group.namespace, aim, goal?.actions ? `${group.done} of ${goal.actions}` : group.done, hope, words, `${group.held} of ${group.given} given`, group.waiting]);
  row.children[4].className = className;
}

// The lent slots by board.
function lending(slots) {
  const boards = new Map();
  for (const slot of slots) {
    const id = `${slot.node}/${slot.board}`;
    if (!boards.has(id)) boards.set(id, { id, node: slot.node, name: slot.board, kind: slot.kind, slots: [] });
    boards.get(id).slots.push(slot);
  }
  return [...boards.values()];
}

function makeBoard() {
  const title = link("", "link", "");
  const kind = el("span", "muted");
  const slots = el("div", "slots");
  const node = el("div", "", el("div", "", title, " ", kind), slots);
  node.draw = (board) => {
    title.href = to("node", board.node, board.name);
    setText(title, `${board.node} / ${board.name}`);
    setText(kind, board.kind);
    keyed(slots, board.slots, (slot) => slot.slot, () => el("span", "slot"), (element, slot) => {
      const isTaken = TAKEN.has(slot.state);
      element.className = `slot ${isTaken && slot.accelerator ? look(slot.accelerator) : "empty"}`;
      setText(element, isTaken ? `${slot.accelerator || "another's"}${slot.namespace ? ` · ${slot.namespace}` : ""}` : slot.state);
      element.title = slot.state;
    });
  };
  return node;
}

function fillJob(row, job) {
  const bytes = job.work?.bytes;
  fill(row, [job.namespace, job.accelerator, bytes === undefined ? "of a group" : bytes.toLocaleString("en"), span(now() - job.firstArrivalMs), job.ahead, job.reason]);
  row.title = job.reason;
}
