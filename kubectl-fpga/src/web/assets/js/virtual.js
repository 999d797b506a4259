// A list of any length: only the rows in sight are elements, and an element is used again for another row.

import { el } from "./dom.js";

const BEYOND = 6;

// `make()` makes the element of a row, `fill(element, item, isSame)` writes an item into it; `isSame` says that the element
// had the item of this key before. `href(item)` is where Enter and a click lead.
export class VirtualList {
  constructor({ height, key, make, fill, href, label }) {
    Object.assign(this, { height, key, make, fill, href });
    this.items = [];
    this.elements = [];
    this.selected = -1;
    this.rows = el("div", "rows");
    this.element = el("div", "list", this.rows);
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", label);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.pressed(event));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
  }

  show(items, height = this.height) {
    const before = this.items[this.selected];
    this.items = items;
    this.height = height;
    if (before) {
      const id = this.key(before);
      this.selected = items.findIndex((item) => this.key(item) === id);
    }
    this.rows.style.height = `${items.length * height}px`;
    this.draw();
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - BEYOND);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.height) + BEYOND);
    const free = new Map(this.elements.map((element) => [element.rowKey, element]));
    const wanted = this.items.slice(first, last).map((item, index) => ({ item, at: first + index, id: this.key(item) }));
    const used = [];
    for (const row of wanted) {
      row.element = free.get(row.id);
      free.delete(row.id);
    }
    const others = [...free.values()];
    for (const { item, at, id, element: same } of wanted) {
      const element = same ?? others.pop() ?? this.add();
      const isSame = element.rowKey === id;
      element.rowKey = id;
      element.href = this.href(item);
      element.id = `row-${at}`;
      element.style.height = `${this.height}px`;
      element.style.transform = `translateY(${at * this.height}px)`;
      element.classList.toggle("selected", at === this.selected);
      element.setAttribute("aria-selected", at === this.selected);
      element.hidden = false;
      this.fill(element, item, isSame);
      used.push(element);
    }
    for (const element of others) element.remove();
    this.elements = used;
    const selected = used.find((element) => element.classList.contains("selected"));
    if (selected) this.element.setAttribute("aria-activedescendant", selected.id);
  }

  add() {
    const element = this.make();
    element.classList.add("row");
    element.setAttribute("role", "option");
    element.tabIndex = -1;
    this.rows.append(element);
    return element;
  }

  select(at) {
    this.selected = Math.max(0, Math.min(this.items.length - 1, at));
    const top = this.selected * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.draw();
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined) this.select(this.selected < 0 && Math.abs(by) === 1 ? 0 : this.selected + by);
    else if (event.key === "Enter" && this.items[this.selected]) location.hash = this.href(this.items[this.selected]);
    else return;
    event.preventDefault();
  }

  stop() {
    this.resized.disconnect();
  }
}
