// Which view is shown: the part of the address after `#`, so that views can be linked to and the browser's back works.

import { cluster } from "./views/cluster.js";
import { node } from "./views/node.js";
import { functions } from "./views/functions.js";
import { oneFunction } from "./views/function.js";
import { decisions } from "./views/decisions.js";
import { pod } from "./views/pod.js";
import { pool } from "./views/pool.js";
import { oneTrace } from "./views/trace.js";

// Each view makes `{ update(changed), tick() }` of its element and the parts of the address after its name; `stop()` is
// called when it goes. A tab is a view that has a place at the top.
const VIEWS = {
  "": { make: cluster, tab: "Cluster" },
  node: { make: node, of: "" },
  functions: { make: functions, tab: "Functions" },
  function: { make: oneFunction, of: "functions" },
  trace: { make: oneTrace, of: "functions" },
  decisions: { make: decisions, tab: "Decisions" },
  pod: { make: pod, of: "decisions" },
  pool: { make: pool, tab: "Pool" },
};

export const TABS = Object.entries(VIEWS).filter(([, view]) => view.tab).map(([name, view]) => ({ name, title: view.tab }));

// The address of a view with its parts.
export function to(name, ...rest) {
  return `#/${[name, ...rest].map(encodeURIComponent).join("/")}`;
}

export function here() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const view = VIEWS[name] ?? VIEWS[""];
  return { view, tab: view.of ?? (VIEWS[name] ? name : ""), rest };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
