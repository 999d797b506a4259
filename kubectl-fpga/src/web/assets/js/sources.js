// The foot of the page: where its data comes from, and whether it comes. What the user may not read says so here.

import { el, keyed, setText } from "./dom.js";
import { rows } from "./store.js";

const NAMES = { nodes: "nodes", pods: "pods", extender: "extender", picker: "endpoint picker" };
const WORDS = { connecting: "connecting", live: "", forbidden: "not allowed", absent: "not installed", unconfigured: "no cluster", lost: "no answer" };

export function showSources() {
  const order = Object.keys(NAMES);
  const found = [...rows("sources")].map(([name, source]) => ({ name, ...source }));
  found.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  keyed(
    document.getElementById("sources"),
    found,
    (source) => source.name,
    () => el("span", "source"),
    (node, source) => {
      const word = WORDS[source.state] ?? source.state;
      node.className = `source ${source.state}`;
      node.title = source.message ?? "";
      setText(node, `${NAMES[source.name] ?? source.name}${word && `: ${word}`}`);
    },
  );
  // What hides part of the page is told above it, too. Who has named no cluster looks at the pool.
  const grave = found.filter(({ name, state, message }) => message && state !== "unconfigured" && (state !== "absent" || name === "extender"));
  keyed(
    document.getElementById("notices"),
    grave,
    (source) => source.name,
    () => el("p", ""),
    (node, source) => setText(node, `${NAMES[source.name] ?? source.name}: ${source.message}`),
  );
}

// Why a view of this source is empty; null if the source is there.
export function whyEmpty(source) {
  const found = rows("sources").get(source);
  return !found || found.state === "live" ? null : (found.message ?? "connecting …");
}
