// All functions: how many replicas, what they ask of the boards. Without an endpoint picker, the workloads of the pods.

import { look } from "../colour.js";
import { el, keyed, link, setText } from "../dom.js";
import { matches } from "../filter.js";
import { count, parts, workload } from "../format.js";
import { to } from "../route.js";
import { whyEmpty } from "../sources.js";
import { rows } from "../store.js";
import { VirtualList } from "../virtual.js";

const ROW_PX = 44;

export function functions(root) {
  const list = new VirtualList({
    height: ROW_PX,
    label: "Functions",
    key: (item) => item.id,
    href: (item) => (item.view ? to("function", ...item.of) : to("functions")),
    make: () => link("", "function-row", el("span", "clip"), el("span", "clip"), el("span", "who"), ...[0, 1, 2].map(() => el("span", "queue"))),
    fill: fillRow,
  });
  const head = el("div", "list-head function-head", ...["Function", "Bitstream", "On", "Replicas", "In flight", "Requests/s"].map((title, index) => el("span", index > 2 ? "queue" : "", title)));
  const note = el("p", "empty-note");
  const number = el("span", "muted");
  root.append(el("div", "tall", el("div", "title", el("h1", "", "Functions"), number), el("section", "card", head, note, list.element)));
  return {
    update(changed) {
      if (changed && !["functions", "pods", "filter", "sources"].some((table) => changed.has(table))) return;
      const routed = rows("functions").size > 0;
      const all = routed ? known() : workloads();
      const found = all.filter((item) => matches(() => [item.id, ...item.bitstreams, ...item.nodes.map(([node]) => node)]));
      setText(number, count(all.length, routed ? "function" : "workload", routed ? "functions" : "workloads"));
      const why = whyEmpty("picker");
      setText(note, routed ? "" : `Workloads, by their pods: the requests of functions are counted by the endpoint picker. ${why ?? ""}`);
      note.hidden = routed;
      list.show(found);
    },
    stop: () => list.stop(),
  };
}

function tally(names) {
  const found = new Map();
  for (const name of names) found.set(name, (found.get(name) ?? 0) + 1);
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}

function known() {
  const all = [...rows("functions")].map(([id, view]) => ({
    id,
    of: [view.namespace, view.name],
    view,
    bitstreams: view.bitstream ? [view.bitstream] : [],
    nodes: tally(view.replicas.map((replica) => replica.node ?? "?")),
    replicas: `${view.replicas.length} of ${view.recommendedReplicas}`,
    inFlight: String(view.inFlight),
    rate: view.perSecond.toFixed(1),
  }));
  return all.sort((a, b) => b.view.inFlight - a.view.inFlight || (a.id < b.id ? -1 : 1));
}

function workloads() {
  const found = new Map();
  for (const [key, pod] of rows("pods")) {
    const { namespace } = parts(key);
    const id = `${namespace}/${workload(key, pod)}`;
    const group = found.get(id) ?? { id, of: id.split("/"), pods: [], bitstreams: new Set() };
    group.pods.push(pod);
    for (const bitstream of pod.bitstreams) group.bitstreams.add(bitstream);
    found.set(id, group);
  }
  return [...found.values()].sort((a, b) => (a.id < b.id ? -1 : 1)).map((group) => ({
    ...group,
    bitstreams: [...group.bitstreams],
    nodes: tally(group.pods.map((pod) => pod.node ?? "waiting")),
    replicas: `${group.pods.filter((pod) => pod.isReady).length} of ${group.pods.length}`,
    inFlight: "–",
    rate: "–",
  }));
}

function fillRow(row, item) {
  const [name, bitstream, on, replicas, inFlight, rate] = row.children;
  if (name.named !== item.id) {
    name.replaceChildren(el("span", "muted", `${item.of[0]}/`), el("b", "", item.of[1]));
    name.named = item.id;
  }
  keyed(bitstream, item.bitstreams, (text) => text, (text) => el("span", "", el("i", `dot ${look(text).split(" ")[0]}`), `${text} `), () => {});
  keyed(on, item.nodes.slice(0, 5), ([node]) => node, ([node]) => el("span", "whom", el("b", "", node), el("span", "muted")), (chip, [, times]) => setText(chip.lastChild, times > 1 ? `×${times}` : ""));
  setText(replicas, item.replicas);
  replicas.title = item.view ? "replicas that are ready, and how many the demand recommends" : "pods that are ready";
  setText(inFlight, item.inFlight);
  setText(rate, item.rate);
}
