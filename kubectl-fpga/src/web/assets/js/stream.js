// The connection to the server. When it is lost the page says so, and connects again.

import { apply } from "./store.js";

const SILENCE_MS = 8000;
const RETRY_MS = 1000;

let skew = 0;
let tell = () => {};
let heard = 0;

// The server's time now.
export function now() {
  return Date.now() + skew;
}

// `listener` is called with "connecting", "live" or "lost" whenever that changes.
export function connect(listener) {
  let state = "";
  tell = (next) => {
    if (next !== state) listener((state = next));
  };
  tell("connecting");
  open();
}

function open() {
  const source = new EventSource("stream");
  let watchdog = 0;
  const alive = () => {
    heard = Date.now();
    tell("live");
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, SILENCE_MS);
  };
  const lost = () => {
    source.close();
    clearTimeout(watchdog);
    tell("lost");
    setTimeout(open, RETRY_MS);
  };
  source.onmessage = (event) => {
    alive();
    apply(JSON.parse(event.data));
  };
  source.addEventListener("time", (event) => {
    alive();
    skew = Number(event.data) - Date.now();
  });
  source.onerror = lost;
}

// Milliseconds since the server was heard.
export function silence() {
  return Date.now() - heard;
}

// Asks the server: the answer as an object, or an Error with its text.
export async function ask(question, signal) {
  const answer = await fetch(`ask?${new URLSearchParams(question)}`, { signal });
  if (answer.ok) return answer.json();
  throw new Error(await answer.text());
}
