// The numbers at the top of the cluster.

import { el, setText } from "../dom.js";
import { count, percent } from "../format.js";
import { rows, waitingPods } from "../store.js";
import { now } from "../stream.js";
import { drawSpark, spark } from "./spark.js";

export function figures() {
  const names = ["Boards", "Slots", "Use", "Tasks waiting", "Pods", "Loads, last minute"];
  const values = names.map(() => el("div", "value", el("span", ""), el("small", "")));
  const trend = spark();
  const element = el("section", "figures card", ...names.map((name, index) => el("div", "", el("h2", "", name), values[index])));
  element.children[2].classList.add("trend");
  element.children[2].append(trend);
  const text = (index, value, small) => {
    setText(values[index].firstChild, value);
    setText(values[index].lastChild, small);
    values[index].lastChild.title = small;
  };
  return {
    element,
    draw() {
      let [nodes, boards, unhealthy, all, loaded, used, queued] = [0, 0, 0, 0, 0, 0, 0];
      const sums = [];
      for (const node of rows("nodes").values()) {
        nodes += 1;
        for (const board of node.boards) {
          boards += 1;
          unhealthy += board.isHealthy ? 0 : 1;
          queued += board.queued;
          const slots = board.slots.length + board.moreSlots;
          all += slots;
          used += board.usage * slots;
          for (const slot of board.slots) loaded += slot ? 1 : 0;
        }
        node.trend.forEach((share, index) => {
          const at = node.trend.length - 1 - index;
          sums[at] = (sums[at] ?? 0) + share;
        });
      }
      const since = now() - 60000;
      const loads = [...rows("moments").values()].filter((moment) => moment.what === "loaded" && moment.atMs > since).length;
      const waiting = waitingPods().size;
      text(0, boards.toLocaleString("en"), unhealthy ? `${unhealthy.toLocaleString("en")} of them unhealthy` : `on ${count(nodes, "node", "nodes")}`);
      values[0].lastChild.classList.toggle("bad", unhealthy > 0);
      text(1, `${loaded.toLocaleString("en")}`, `of ${all.toLocaleString("en")} loaded`);
      text(2, percent(all ? used / all : 0), "of all slots' time");
      text(3, queued.toLocaleString("en"), queued === 1 ? "waits for a slot" : "for a slot");
      text(4, rows("pods").size.toLocaleString("en"), waiting ? `${waiting.toLocaleString("en")} without a node` : "all have a node");
      text(5, loads >= 200 ? "200+" : String(loads), "bitstreams");
      const shares = sums.reverse().map((sum) => sum / Math.max(1, nodes));
      drawSpark(trend, shares, Math.max(1, ...shares));
    },
  };
}
