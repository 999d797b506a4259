// A board, drawn as its slots with the bitstreams in them.

import { look } from "../colour.js";
import { el, setText } from "../dom.js";

export function slots() {
  return el("div", "slots");
}

// Draws the slots of a board. With `isSame` the element showed this board before, and what differs has just been loaded or
// evicted.
export function drawSlots(element, board, isSame) {
  const more = board.moreSlots > 0 ? 1 : 0;
  while (element.children.length > board.slots.length + more) element.lastChild.remove();
  board.slots.forEach((bitstream, index) => {
    let slot = element.children[index];
    if (!slot) {
      slot = el("span", "slot");
      slot.bitstream = undefined;
      element.append(slot);
    }
    const before = slot.bitstream;
    if (before === bitstream && isSame) return;
    slot.bitstream = bitstream;
    setText(slot, bitstream ?? "empty");
    slot.title = bitstream ?? "an empty slot";
    const happened = isSame && before !== undefined ? (bitstream ? " arrived" : " left") : "";
    slot.className = `slot ${bitstream ? look(bitstream) : "empty"}`;
    if (happened) {
      // The animation of an earlier change may still run.
      void slot.offsetWidth;
      slot.className += happened;
    }
  });
  if (more) {
    const text = `+${board.moreSlots}`;
    let rest = element.children[board.slots.length];
    if (!rest) element.append((rest = el("span", "more-slots")));
    rest.className = "more-slots";
    setText(rest, text);
  }
}

// Why a board or its node should not be trusted as it is drawn; null if it should.
export function trouble(node, board) {
  if (node.problem) return { text: "unreadable", title: node.problem, className: "bad" };
  if (board && !board.isHealthy) return { text: "unhealthy", title: "The board does not answer", className: "bad" };
  if (board?.cordon) return { text: "cordoned", title: `Out of rotation: ${board.cordon}`, className: "warn" };
  if (node.freshness === "stale") return { text: "stale", title: "Nothing was heard of the node for a while", className: "warn" };
  if (node.freshness === "absent") return { text: "no state", title: "The node has our label, and no collector reports", className: "warn" };
  return null;
}

// Two bars in one: what was used, and what of that went into reconfiguring.
export function meter() {
  const used = el("i", "");
  const reconfigured = el("i", "");
  const element = el("div", "meter", used, reconfigured);
  element.draw = (usage, reconfiguration) => {
    used.style.width = `${usage / 10}%`;
    reconfigured.style.width = `${Math.min(usage, reconfiguration) / 10}%`;
    element.title = `used ${usage / 10} %, of it reconfiguring ${reconfiguration / 10} %`;
  };
  return element;
}
