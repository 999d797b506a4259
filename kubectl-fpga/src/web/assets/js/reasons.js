// The texts of the reasons why nodes are rejected, as kube-scheduler's events have them.

import { ask } from "./stream.js";

let texts = {};

export async function loadReasons() {
  texts = await ask({ view: "reasons" });
}

export function reasonText(name) {
  return texts[name] ?? name;
}
