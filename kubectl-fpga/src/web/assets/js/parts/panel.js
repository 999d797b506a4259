// A panel at the side: a title, a list, and what is said when the list is empty.

import { el, setText } from "../dom.js";

export function panel(title, list = el("ul", ""), more = null) {
  const note = el("p", "empty-note");
  const element = el("section", "panel card", el("h2", "", el("span", "", title), more), note, list);
  return {
    element,
    list,
    title: element.firstChild.firstChild,
    note(text) {
      setText(note, text);
      note.hidden = text === "";
    },
  };
}
