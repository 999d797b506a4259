// Who waits, and why.

import { el, keyed, link, setText } from "../dom.js";
import { count, parts, span } from "../format.js";
import { to } from "../route.js";
import { whyEmpty } from "../sources.js";
import { podsOn, rows, waitingPods } from "../store.js";
import { now } from "../stream.js";

const MOST_WAITING = 8;

// Pods without a node, then pods whose containers are held up, then boards with tasks that wait; by tenant.
export function drawWaiting({ list, note, title }) {
  const found = [];
  for (const key of waitingPods()) {
    const pod = rows("pods").get(key);
    if (pod) found.push({ key, href: to("pod", ...Object.values(parts(key))), pod, why: pod.waits ?? "kube-scheduler has not said why" });
  }
  for (const [key, pod] of rows("pods")) {
    if (found.length >= MOST_WAITING) break;
    if (pod.node && pod.waits) found.push({ key, href: to("pod", ...Object.values(parts(key))), pod, why: pod.waits });
  }
  found.sort((a, b) => (a.key < b.key ? -1 : 1));
  let tasks = 0;
  const queues = [];
  for (const [node, row] of rows("nodes")) {
    for (const board of row.boards) {
      tasks += board.queued;
      if (board.queued === 0) continue;
      queues.push({ node, board });
    }
  }
  queues.sort((a, b) => b.board.queued - a.board.queued);
  for (const { node, board } of queues.slice(0, MOST_WAITING)) {
    const tenants = [...new Set(podsOn(node, board.id).map(([key]) => parts(key).namespace))].sort();
    const why = tenants.length > 0 ? `for a slot; on the board: ${tenants.join(", ")}` : "for a slot";
    found.push({ key: `${node}/${board.id}`, href: to("node", node, board.id), tasks: board.queued, why });
  }
  setText(title, found.length > 0 ? `Waiting · ${count(waitingPods().size, "pod", "pods")}, ${count(tasks, "task", "tasks")}` : "Waiting");
  const blocked = whyEmpty("pods");
  note(blocked ? `You do not see pods: ${blocked}` : found.length > 0 ? "" : "Nobody waits.");
  keyed(list, found.slice(0, MOST_WAITING), (item) => item.key, makeWaiting, (node, item) => node.draw(item));
}

function makeWaiting() {
  const name = el("b", "clip");
  const since = el("span", "faint");
  const why = el("span", "why");
  const anchor = link("", "", el("span", "line", el("span", "clip", name), since), why);
  const item = el("li", "", anchor);
  item.draw = (found) => {
    item.found = found;
    anchor.href = found.href;
    setText(name, found.tasks ? `${count(found.tasks, "task", "tasks")} on ${found.key}` : found.key);
    setText(why, found.why);
    why.title = found.why;
    item.tick();
  };
  item.tick = () => setText(since, item.found?.pod?.createdAtMs ? span(now() - item.found.pod.createdAtMs) : "");
  return item;
}
