// The page: connects, and draws the view that is asked for whenever its data changes.

import { el, link, setText } from "./dom.js";
import { listenToFilter, onFilter } from "./filter.js";
import { span } from "./format.js";
import { listenToKeys } from "./keys.js";
import { loadReasons } from "./reasons.js";
import { TABS, here, to } from "./route.js";
import { showSources } from "./sources.js";
import { listen, waitingPods } from "./store.js";
import { connect, silence } from "./stream.js";
import { restoreTheme } from "./theme.js";

const WORDS = { connecting: "connecting", live: "live", lost: "connection lost, trying again", replaced: "connection lost" };
// What to do about it; a connection that comes back within some seconds needs nothing.
const ADVICE = {
  lost: "Nobody answers at the address of this page. If kubectl fpga web (or the demo) has ended, start it again and open the address that it prints: each start has another one.",
  replaced: "kubectl fpga web was started again: open the address that it has printed. This page shows what was before.",
};
const ADVICE_AFTER_MS = 5000;

const MEASURES = 200;

const view = document.getElementById("view");
let shown = null;
let changed = new Set();
let isDue = false;
let connection = "connecting";

function show() {
  shown?.stop?.();
  const { view: next, tab, rest } = here();
  view.replaceChildren();
  shown = next.make(view, rest);
  shown.update(null);
  for (const node of document.querySelectorAll("#tabs a")) {
    if (node.dataset.tab === tab) node.setAttribute("aria-current", "page");
    else node.removeAttribute("aria-current");
  }
}

// Changes that come together are drawn together, in the next frame.
function draw(tables) {
  for (const table of tables) changed.add(table);
  if (isDue) return;
  isDue = true;
  const now = () => {
    isDue = false;
    const started = performance.now();
    const tables = changed;
    changed = new Set();
    if (tables.has("sources")) showSources();
    shown.update(tables);
    showTabs();
    // For who looks at the page's speed; the browser would keep all of them.
    if (performance.getEntriesByName("update").length >= MEASURES) performance.clearMeasures("update");
    performance.measure("update", { start: started });
  };
  // A page that nobody sees has no frames.
  if (document.hidden) setTimeout(now, 200);
  else requestAnimationFrame(now);
}

function showTabs() {
  const waiting = waitingPods().size;
  document.title = waiting > 0 ? `(${waiting}) kube-fpga` : "kube-fpga";
}

function tick() {
  const status = document.getElementById("status");
  const isGone = connection in ADVICE;
  setText(status, isGone ? `${WORDS[connection]} (${span(silence())})` : WORDS[connection]);
  const advises = connection === "replaced" || (isGone && silence() > ADVICE_AFTER_MS);
  setText(document.getElementById("advice"), advises ? ADVICE[connection] : "");
  shown?.tick?.();
}

restoreTheme();
TABS.forEach(({ name, title }, index) => {
  const tab = link(to(name), "", title, el("kbd", "", String(index + 1)));
  tab.dataset.tab = name;
  document.getElementById("tabs").append(tab);
});
listenToKeys();
listenToFilter();
onFilter(() => draw(["filter"]));
listen(draw);
addEventListener("hashchange", show);
show();
// The names of reasons tell enough until their texts are there.
loadReasons().then(() => draw(["decisions"]), () => {});
connect((state) => {
  connection = state;
  document.getElementById("status").className = state;
  document.body.classList.toggle("lost", state in ADVICE);
  tick();
});
setInterval(tick, 1000);
