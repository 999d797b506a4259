// Keys of the whole page.

import { el } from "./dom.js";
import { TABS, to } from "./route.js";
import { toggleTheme } from "./theme.js";

const KEYS = [
  [TABS.map((_, index) => String(index + 1)), "the views"],
  [["j", "k"], "down and up a list"],
  [["Enter"], "open what is selected"],
  [["Esc"], "back"],
  [["/"], "filter"],
  [["t"], "light or dark"],
  [["?"], "these keys"],
];

export function listenToKeys() {
  const dialog = document.getElementById("keys");
  const filter = document.getElementById("filter");
  const list = el("dl", "");
  for (const [keys, what] of KEYS) {
    const term = el("dt", "");
    keys.forEach((key, index) => term.append(...(index ? [" "] : []), el("kbd", "", key)));
    list.append(term, el("dd", "", what));
  }
  dialog.append(el("h1", "", "Keys"), list);
  dialog.addEventListener("click", () => dialog.close());
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.getElementById("theme").addEventListener("click", toggleTheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target === filter) {
      if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") {
        if (event.key === "Escape") {
          filter.value = "";
          filter.dispatchEvent(new Event("input"));
        }
        focusList();
        event.preventDefault();
      }
      return;
    }
    const tab = TABS[Number(event.key) - 1];
    if (tab) location.hash = to(tab.name);
    else if (event.key === "/") filter.focus();
    else if (event.key === "?") dialog.showModal();
    else if (event.key === "t") toggleTheme();
    else if (event.key === "Escape" && location.hash.length > 2) history.back();
    else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && !event.target.closest?.(".list")) {
      const list = focusList();
      list?.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
    } else return;
    event.preventDefault();
  });
}

function focusList() {
  const list = document.querySelector("#view .list");
  (list ?? document.getElementById("view")).focus();
  return list;
}
