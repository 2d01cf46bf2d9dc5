// The list of runs, with what waits for people in all of them.
import { badge, fill, get, make, page, progress, Refused, runLook, span } from "./parts.js";
import { panel } from "./panel.js";

const EVERY = 3_000; // milliseconds
const STATES = ["", "running", "queued", "waiting", "stuck", "interrupted", "succeeded", "failed", "cancelled"];

/** Show the list for ever; ends with an error if nobody may see it. */
export async function list(main) {
  const waiting = make("section", { id: "open", "aria-label": "Waiting for you" });
  const search = make("input", { type: "search", placeholder: "name, goal or command", "aria-label": "find runs", input: again });
  const state = make("select", { "aria-label": "state", change: again }, ...STATES.map((s) => make("option", { value: s }, s || "every state")));
  const rows = make("tbody");
  const more = make("button", { hidden: true, click: () => { limit += 50; again(); } }, "More");
  const status = make("p.soft", { role: "status" });
  let limit = 50, shown = "", asked = "";
  fill(main, make("h1", "Runs"), waiting, make("div.tools", search, state, make("a", { href: page("metrics") }, "Metrics")), status,
    make("div.scroll", make("table.runs", {},
      make("thead", make("tr", ...["state", "run", "what", "steps", "began"].map((name) => make("th", { scope: "col" }, name)))), rows)), more);

  function again() { show().catch((error) => { status.textContent = error.message; }); }
  async function show() {
    const found = await get(`runs?limit=${limit}&state=${state.value}&q=${encodeURIComponent(search.value)}`);
    const text = JSON.stringify(found);
    if (text === shown) return;
    shown = text;
    fill(rows, ...found.runs.map(row));
    more.hidden = !found.more;
    status.textContent = found.total === 1 ? "1 run" : `${found.total} runs`;
    document.title = found.open ? `‖ ${found.open} waiting · dagrun` : "dagrun runs";
    await questions(found.open);
  }
  async function questions(count) {
    const open = count ? await get("questions") : { questions: [] };
    const ids = open.questions.map(({ question }) => question.id).join();
    if (ids === asked) return; // what a person has typed stays
    asked = ids;
    fill(waiting, count ? make("h2", `Waiting for you (${open.questions.length})`) : "", ...open.questions.map((q) => make("article", {},
      make("p", make("a", { href: page(`r/${q.run}`) }, q.run), ` ${q.goal}`, q.queue && make("small", q.queue.words)), panel(q.run, q.question, open.read_only, () => setTimeout(again, 300)))));
  }
  for (;;) {
    try { if (!document.hidden) await show(); } catch (error) {
      if (error instanceof Refused && error.status === 401) throw error;
      status.textContent = `not connected: ${error.message}`;
    }
    await new Promise((go) => setTimeout(go, EVERY));
  }
}

function row(run) {
  const isBad = run.reason && run.state !== "running" && run.status !== "succeeded";
  return make("tr", { "data-run": run.run_id },
    make("td", badge(runLook(run)), run.questions ? make("span.asks", ` ${run.questions} to answer`) : null, run.queue && make("small", run.queue.words)),
    make("td", make("a", { href: page(`r/${run.run_id}`) }, run.run_id)),
    make("td.what", { title: run.goal || run.command }, run.goal || run.command || "a plan", isBad ? make("small", run.reason) : null, run.queue && run.queue.reason !== run.reason ? make("small", run.queue.reason) : null),
    make("td", progress(run.counts, run.steps), make("small", `${run.settled.toLocaleString("en")} of ${run.steps.toLocaleString("en")}`)),
    make("td", run.began ? make("time", { title: new Date(run.began * 1000).toString() }, ago(run.began)) : ""));
}

function ago(then) {
  const seconds = Math.max(0, Math.floor(Date.now() / 1000 - then));
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 86_400 ? `${span(seconds)} ago` : new Date(then * 1000).toLocaleDateString();
}
