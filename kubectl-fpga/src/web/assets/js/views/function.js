// A function: its replicas with what the endpoint picker knows of their boards, where its last requests went, and how many of
// them found their bitstream loaded.

import { look } from "../colour.js";
import { el, keyed, link, setText } from "../dom.js";
import { clock, count, micros, span } from "../format.js";
import { to } from "../route.js";
import { rows } from "../store.js";
import { ask } from "../stream.js";

const PERIOD_MS = 1000;
// What a pick was based on, in words.
const BASES = {
  resident: "the bitstream was loaded and a slot idle",
  load: "a cold start: the bitstream had to be loaded",
  queue: "all boards were busy: the shortest queue",
  in_flight: "no fresh state: the fewest requests in flight",
  cordoned: "its board is cordoned, and no other replica had an idle slot",
  refused: "refused",
};

export function oneFunction(root, [namespace, name]) {
  const head = el("span", "muted");
  const figures = el("dl", "facts");
  const replicas = el("tbody", "");
  const picks = el("tbody", "");
  const shares = el("div", "share");
  const legend = el("div", "legend");
  const note = el("p", "problem");
  const slow = el("tbody", "");
  const traced = el("section", "card box wide", el("h2", "", "Its slowest requests with a trace"), el("table", "", headings("At", "Took", "Loads", "Spans"), slow));
  root.append(el("div", "page",
    el("p", "crumbs", link(to("functions"), "link", "Functions")),
    el("div", "title", el("h1", "", `${namespace}/${name}`), head),
    el("div", "grid",
      el("section", "card box", el("h2", "", "Demand"), figures),
      el("section", "card box", el("h2", "", "Its last requests"), shares, legend, note),
      el("section", "card box wide", el("h2", "", "Replicas"), el("table", "", headings("Replica", "Node", "Board", "In flight", "Idle slots", "With bitstream", "Waiting"), replicas)),
      traced,
      el("section", "card box wide", el("h2", "", "Where they went, and why"), el("table", "", headings("Ago", "To", "Board", "Why", "Then"), picks)))));

  const stopped = new AbortController();
  async function refresh() {
    try {
      drawPicks(await ask({ view: "picks", function: `${namespace}/${name}` }, stopped.signal));
      setText(note, "");
    } catch (error) {
      if (stopped.signal.aborted) return;
      setText(note, error.message);
    }
    if (!stopped.signal.aborted) setTimeout(refresh, PERIOD_MS);
  }

  function drawPicks(known) {
    const all = Object.values(known).flatMap((view) => view.picks).sort((a, b) => a.agoMs - b.agoMs).slice(0, 32);
    const bases = Object.keys(BASES).map((basis) => [basis, all.filter((pick) => (pick.basis ?? "refused") === basis).length]).filter(([, number]) => number > 0);
    keyed(shares, bases, ([basis]) => basis, ([basis]) => el("i", `basis-${basis}`), (part, [, number]) => (part.style.flexGrow = number));
    keyed(legend, bases, ([basis]) => basis, ([basis]) => el("span", "", square(basis), el("span", "")), (part, [basis, number]) => setText(part.lastChild, `${number} × ${BASES[basis]}`));
    if (all.length === 0) setText(legend, "No request yet.");
    const rowsOf = all.map((pick, index) => ({ pick, index }));
    keyed(picks, rowsOf, ({ index }) => index, () => cells(5), (row, { pick }) => {
      const [ago, where, board, why, then] = row.children;
      setText(ago, span(pick.agoMs));
      setText(where, pick.endpoints?.[0] ?? "nowhere");
      setText(board, pick.node ? `${pick.node}${pick.board ? ` / ${pick.board}` : ""}` : "–");
      const basis = pick.basis ?? "refused";
      if (why.basis !== basis) why.replaceChildren(square(basis), ` ${BASES[basis] ?? basis}${pick.refused ? `: ${pick.refused}` : ""}`);
      why.basis = basis;
      setText(then, pick.endpoints?.slice(1, 4).join(", ") || "–");
    });
  }

  // There are traces only where the page takes them.
  function drawTraces() {
    const found = [...rows("traces")].filter(([, row]) => row.function === `${namespace}/${name}`).sort(([, a], [, b]) => b.tookUs - a.tookUs);
    traced.hidden = found.length === 0;
    keyed(slow, found, ([id]) => id, ([id]) => el("tr", "", el("td", "", link(to("trace", id), "link")), ...cells(3).children), (row, [, trace]) => {
      const [at, took, loads, spans] = row.children;
      setText(at.firstChild, clock(trace.atMs));
      setText(took, micros(trace.tookUs));
      setText(loads, String(trace.spans.filter((one) => one.name === "load").length));
      setText(spans, String(trace.spans.length));
    });
  }

  function update(changed) {
    if (!changed || changed.has("traces")) drawTraces();
    if (changed && !changed.has("functions")) return;
    const view = rows("functions").get(`${namespace}/${name}`);
    setText(head, view ? (view.bitstream ? "" : "nobody says which bitstream it uses") : "no picker knows this function now");
    if (view?.bitstream && head.shown !== view.bitstream) {
      head.shown = view.bitstream;
      head.replaceChildren(el("i", `dot ${look(view.bitstream).split(" ")[0]}`), view.bitstream);
    }
    if (!view) return;
    const told = [
      ["In flight", `${view.inFlight} now, ${view.meanInFlight.toFixed(2)} in the mean of the last minutes`],
      ["Requests", `${view.perSecond.toFixed(2)} per second`],
      ["Replicas", `${count(view.replicas.length, "is", "are")} ready; the demand recommends ${view.recommendedReplicas}`],
    ];
    keyed(figures, told.flatMap(([term, text]) => [{ id: `${term} term`, tag: "dt", text: term }, { id: term, tag: "dd", text }]), (fact) => fact.id, (fact) => el(fact.tag, ""), (node, fact) => setText(node, fact.text));
    keyed(replicas, view.replicas, (replica) => replica.address, () => cells(7), (row, replica) => {
      const sure = (figure) => (replica.fresh ? String(figure) : "?");
      const values = [replica.address, replica.node ?? "?", boards(replica), String(replica.inFlight), replica.fresh ? `${replica.idle} of ${replica.slots}` : "?", sure(replica.idleWithBitstream), sure(replica.waiting)];
      values.forEach((value, index) => setText(row.children[index], value));
    });
  }
  refresh();
  return { update, stop: () => stopped.abort() };
}

function headings(...titles) {
  return el("thead", "", el("tr", "", ...titles.map((title) => el("th", "", title))));
}

function cells(number) {
  return el("tr", "", ...Array.from({ length: number }, () => el("td", "")));
}

// The boards of a replica, and why some are out of rotation.
function boards(replica) {
  const cordons = Object.entries(replica.cordons ?? {}).map(([board, reason]) => `; ${board} is cordoned${reason ? `: ${reason}` : ""}`);
  return `${replica.board ?? "?"}${cordons.join("")}`;
}

function square(basis) {
  return el("i", `dot basis-${basis}`);
}
