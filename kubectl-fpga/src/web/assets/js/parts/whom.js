// For whom a board works: its pods, by workload.

import { el, keyed, setText } from "../dom.js";
import { parts, workload } from "../format.js";

export function whom() {
  return el("div", "who");
}

// Draws pods `[key, row]` as one chip for each workload.
export function drawWhom(element, pods) {
  const found = new Map();
  for (const [key, pod] of pods) {
    const { namespace } = parts(key);
    const name = workload(key, pod);
    const id = `${namespace}/${name}`;
    const group = found.get(id) ?? { id, namespace, name, count: 0, ready: 0 };
    group.count += 1;
    if (pod.isReady) group.ready += 1;
    found.set(id, group);
  }
  const groups = [...found.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  element.title = groups.map((group) => `${group.id} × ${group.count}`).join("\n");
  keyed(
    element,
    groups.slice(0, 6),
    (group) => group.id,
    () => el("span", "whom", el("span", "muted"), el("b", ""), el("span", "muted")),
    (chip, group) => {
      chip.classList.toggle("waiting", group.ready === 0);
      const [namespace, name, count] = chip.children;
      setText(namespace, group.namespace);
      setText(name, group.name);
      setText(count, group.count > 1 ? `×${group.count}` : "");
    },
  );
}
