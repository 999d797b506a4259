// The connection to the server. When it is lost the page says so, and connects again, unless another server has taken the
// place of this page's: each has a token of its own, which is in its address alone.

import { apply } from "./store.js";

const SILENCE_MS = 8000;
const RETRY_MS = 1000;
const FORBIDDEN = 403;

let skew = 0;
let tell = () => {};
let heard = 0;

// The server's time now.
export function now() {
  return Date.now() + skew;
}

// `listener` is called with "connecting", "live", "lost" or "replaced" whenever that changes.
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
    setTimeout(reopen, RETRY_MS);
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

async function reopen() {
  if (await isReplaced()) tell("replaced");
  else open();
}

// Whether a server answers that does not know this page's token.
async function isReplaced() {
  try {
    return (await fetch("icon.svg", { signal: AbortSignal.timeout(SILENCE_MS) })).status === FORBIDDEN;
  } catch {
    return false;
  }
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
