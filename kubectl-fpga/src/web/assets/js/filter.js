// The filter at the top: words that must all be somewhere in a row.

const listeners = new Set();
let words = [];

export function listenToFilter() {
  const input = document.getElementById("filter");
  input.addEventListener("input", () => {
    words = input.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    for (const listener of listeners) listener();
  });
}

export function onFilter(listener) {
  listeners.add(listener);
}

export function isFiltered() {
  return words.length > 0;
}

// Whether all words are in one of `texts` each; `texts` is asked only if there is a filter.
export function matches(texts) {
  if (words.length === 0) return true;
  const all = texts().join(" ").toLowerCase();
  return words.every((word) => all.includes(word));
}
