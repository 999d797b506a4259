// Elements. All that comes from the cluster is text: nothing here parses HTML, and the page's policy forbids it.

// An element with a class and children: elements, texts, or null for nothing.
export function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function link(href, className, ...children) {
  const node = el("a", className, ...children);
  node.href = href;
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Writes a text where it differs, so that nothing is laid out anew for nothing.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Makes the children of `parent` the elements of `items`, in their order: `make` makes the element of a key that is new,
// `fill` writes an item into its element.
export function keyed(parent, items, key, make, fill) {
  const before = parent.keyed ?? new Map();
  const now = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    const node = before.get(id) ?? make(item);
    before.delete(id);
    now.set(id, node);
    fill(node, item);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const gone of before.values()) gone.remove();
  parent.keyed = now;
}
