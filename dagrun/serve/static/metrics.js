// The metrics of the runs on record: all of them, and by group.
import { fill, get, make, page, Refused } from "./parts.js";

const EVERY = 30_000; // milliseconds
const TIMES = [["", "all times"], ["1d", "the last day"], ["7d", "the last 7 days"], ["30d", "the last 30 days"]];
const GROUPS = ["", "tool", "provider", "planner", "plan", "day", "week"];

/** Show the metrics for ever; ends with an error if nobody may see them. */
export async function metrics(main) {
  const options = (choices) => choices.map(([value, text]) => make("option", { value }, text));
  const since = make("select", { "aria-label": "runs of", change: again }, ...options(TIMES));
  const by = make("select", { "aria-label": "groups by", change: again }, ...options(GROUPS.map((g) => [g, g ? `by ${g}` : "no groups"])));
  const status = make("p.soft", { role: "status" });
  const groups = make("div.scroll"), all = make("div.scroll");
  document.title = "dagrun metrics";
  fill(main, make("p", make("a", { href: page(".") }, "All runs")), make("h1", "Metrics"), make("div.tools", since, by), status, groups, all);

  function again() { show().catch(failed); }
  function failed(error) { status.textContent = error.message; }
  async function show() {
    const found = await get(`metrics?since=${since.value}&by=${by.value}`);
    const left = Object.keys(found.left_out).length;
    status.textContent = `${found.metrics.runs.value} runs; ${found.metrics.ended_runs.value} have ended`
      + (left ? `; ${left} damaged or unreadable, and not counted` : "");
    fill(groups, found.by && found.rows.length ? table([found.by, ...found.columns.map(({ title, text }) => [title, text])],
      found.rows.map(({ name, cells }) => [name, ...cells])) : null);
    fill(all, table(["metric", "value", "95 % interval", "what it is"],
      found.shown.map(({ name, value, certainty, text }) => [name, value, certainty, text])));
  }
  for (;;) {
    try { if (!document.hidden) await show(); } catch (error) {
      if (error instanceof Refused && error.status === 401) throw error;
      failed(error);
    }
    await new Promise((go) => setTimeout(go, EVERY));
  }
}

function table(head, rows) {
  const titles = head.map((one) => Array.isArray(one) ? make("th", { scope: "col", title: one[1] }, one[0]) : make("th", { scope: "col" }, one));
  return make("table.runs.metrics", {}, make("thead", make("tr", ...titles)),
    make("tbody", ...rows.map(([name, ...cells]) => make("tr", make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", cell))))));
}
