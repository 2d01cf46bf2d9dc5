// The page: the list of runs with what waits for people, and one run while it goes on.
import { ask, badge, diff, fill, get, keepToken, make, page, panel, post, Refused, span, symbol, takeToken, value, words } from "./parts.js";

const HIDDEN_EVERY = 10_000, LIST_EVERY = 3_000, SILENT = 25_000, ROW = 28; // milliseconds; pixels
const ORDER = ["held", "running", "ready", "blocked", "waiting"];
const SHOWN = ["succeeded", "skipped", "superseded", "cancelled", "failed", "timed_out", "unknown", "abandoned", "running", ...["held", "ready", "blocked", "waiting"]];
const sorted = (/** @type {Record<string, number>} */ counts) => SHOWN.filter((state) => counts[state]).map((state) => /** @type {[string, number]} */ ([state, counts[state]]));
const BAD = ["failed", "timed_out", "unknown", "abandoned"];
const main = document.getElementById("page");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const pause = (/** @type {number} */ ms) => new Promise((go) => setTimeout(go, ms));

/** Show why nothing can be shown; without a token, ask for it. */
function stop(error) {
  document.title = "dagrun";
  const token = make("input", { type: "password", id: "token", autocomplete: "off" });
  const form = make("form", { submit: (event) => { event.preventDefault(); keepToken(token.value.trim()); location.reload(); } },
    make("label", { for: "token" }, "The token, which the command has printed: "), token, make("button", {}, "Look"));
  fill(main, make("p", {}, make("a", { href: page(".") }, "All runs")), make("h1", {}, error.message), error.status === 401 ? form : "");
}

// The list -------------------------------------------------------------------------------------------------

async function list() {
  const waiting = make("section", { id: "open", "aria-label": "Waiting for you" });
  const search = make("input", { type: "search", placeholder: "name, goal or command", "aria-label": "find runs", input: again });
  const state = make("select", { "aria-label": "state", change: again },
    ...["", "running", "waiting", "interrupted", "succeeded", "failed", "cancelled"].map((s) => make("option", { value: s }, s || "every state")));
  const rows = make("tbody");
  const more = make("button", { type: "button", hidden: true, click: () => { limit += 50; again(); } }, "More");
  const status = make("p", { class: "soft", role: "status" });
  let limit = 50, shown = "", asked = "";
  fill(main, make("h1", {}, "Runs"), waiting, make("div", { class: "tools" }, search, state), status,
    make("div", { class: "scroll" }, make("table", { class: "runs" },
      make("thead", {}, make("tr", {}, ...["state", "run", "what", "steps", "began"].map((name) => make("th", { scope: "col" }, name)))), rows)), more);

  function again() { show().catch((error) => { status.textContent = error.message; }); }
  async function show() {
    const found = await get(`runs?limit=${limit}&state=${state.value}&q=${encodeURIComponent(search.value)}`);
    const text = JSON.stringify(found);
    if (text === shown) return;
    shown = text;
    fill(rows, ...found.runs.map(row));
    more.hidden = !found.more;
    status.textContent = found.total === 1 ? "1 run" : `${found.total} runs`;
    document.title = found.open ? `? ${found.open} waiting · dagrun` : "dagrun runs";
    await questions(found.open);
  }
  async function questions(count) {
    const open = count ? await get("questions") : { questions: [] };
    const ids = open.questions.map(({ question }) => question.id).join();
    if (ids === asked) return; // what a person has typed stays
    asked = ids;
    fill(waiting, count ? make("h2", {}, `Waiting for you (${open.questions.length})`) : "", ...open.questions.map((q) => make("article", {},
      make("p", {}, make("a", { href: page(`r/${q.run}`) }, q.run), ` ${q.goal}`), panel(q.run, q.question, open.read_only, () => setTimeout(again, 300)))));
  }
  for (;;) {
    try { if (!document.hidden) await show(); } catch (error) {
      if (error instanceof Refused && error.status === 401) return stop(error);
      status.textContent = `not connected: ${error.message}`;
    }
    await pause(LIST_EVERY);
  }
}

function row(run) {
  const state = run.stand === "ended" ? run.status : run.stand;
  return make("tr", { "data-run": run.run_id }, make("td", {}, badge(state ?? "ended"), run.questions ? make("span", { class: "asks" }, ` ${run.questions} to answer`) : null),
    make("td", {}, make("a", { href: page(`r/${run.run_id}`) }, run.run_id)),
    make("td", { class: "what", title: run.goal || run.command }, run.goal || run.command || "a plan", run.reason && run.stand !== "running" && state !== "succeeded" ? make("small", {}, run.reason) : null),
    make("td", {}, progress(run.counts, run.steps), make("small", {}, `${run.settled} of ${run.steps}`)),
    make("td", {}, run.began ? make("time", { title: new Date(run.began * 1000).toString() }, ago(run.began)) : ""));
}
const ago = (/** @type {number} */ then) => {
  const seconds = Date.now() / 1000 - then;
  return seconds < 86_400 ? `${span(Math.max(0, Math.floor(seconds)))} ago` : new Date(then * 1000).toLocaleDateString();
};

function progress(counts, total) {
  const bar = make("div", { class: "progress", role: "img", "aria-label": sorted(counts).map(([s, n]) => `${n} ${words(s)}`).join(", ") });
  for (const [state, count] of sorted(counts)) {
    const part = make("span", { class: `b ${state}`, title: `${count} ${words(state)}` });
    part.style.flexGrow = String(count);
    if (count) bar.append(part);
  }
  return total ? bar : "";
}

// One run --------------------------------------------------------------------------------------------------

class RunPage {
  constructor(run) {
    this.run = run;
    this.cursor = "";
    this.view = null;
    this.lastNews = 0; // when the view was true, on the clock of the browser
    this.filter = "";
    this.states = new Set();
    this.order = "live";
    this.unfolded = new Set();
    this.asked = "";
    this.selected = null;
    this.build();
  }

  build() {
    const id = (name, tag = "section") => (this[name] = make(tag, { id: name }));
    this.lost = make("p", { id: "lost", role: "status", hidden: true });
    this.text = make("input", { type: "search", placeholder: "filter steps  ( / )", "aria-label": "filter steps", input: () => { this.filter = this.text.value.toLowerCase(); this.list(); } });
    const order = make("select", { "aria-label": "order of steps", change: () => { this.order = order.value; this.list(); } },
      ...["live", "plan", "start", "duration", "wait"].map((name) => make("option", { value: name }, `${name} order`)));
    this.chips = make("div", { class: "chips", role: "group", "aria-label": "states" });
    this.axis = make("div", { class: "axis", "aria-hidden": "true" });
    this.inner = make("div", { class: "inner", role: "rowgroup" });
    this.rows = make("div", { id: "rows", role: "table", "aria-label": "steps", tabindex: 0, scroll: () => this.paint() }, this.inner);
    this.drawer = make("aside", { id: "step", role: "dialog", "aria-labelledby": "step-name", hidden: true });
    fill(main, make("nav", {}, make("a", { href: page(".") }, "← All runs")), this.lost, id("head", "header"), id("wrong"), id("open"), 
      make("section", { id: "time" }, make("h2", {}, "Steps and time"), make("div", { class: "tools" }, this.text, order), this.chips, this.axis, this.rows), id("changes"), this.drawer);
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.paint());
  }

  // Keeping up with the run
  async follow() {
    let wait = 1000;
    for (;;) {
      try {
        if (document.hidden && this.cursor) await this.poll();
        else if (await this.stream()) return;
        wait = 1000;
      } catch (error) {
        if (error instanceof Refused && [401, 404].includes(error.status) && !this.view) return stop(error);
        if (error instanceof Refused && error.status === 409) this.cursor = "";
        this.isLost = true;
        this.tick();
        await pause(wait);
        wait = Math.min(30_000, wait * 2);
      }
    }
  }

  async poll() {
    const until = Date.now() + HIDDEN_EVERY;
    while (document.hidden && Date.now() < until) await pause(250);
    if (document.hidden) this.take("changes", await get(`runs/${this.run}/changes?after=${this.cursor}`));
  }

  /** Read the stream until it ends; return whether nothing more will come. */
  async stream() {
    const control = new AbortController();
    const leave = () => document.hidden && control.abort();
    document.addEventListener("visibilitychange", leave);
    let heard = Date.now(), isOver = false;
    const watchdog = setInterval(() => Date.now() - heard > SILENT && control.abort(), 1000);
    try {
      const response = await ask(`runs/${this.run}/stream?after=${this.cursor}`, { signal: control.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let parts = [];
      for (;;) {
        const { value: text, done } = await reader.read();
        if (done) { if (!isOver) throw new Error("the stream ended"); return true; }
        heard = Date.now();
        this.isLost = false;
        parts.push(text);
        if (!text.includes("\n") || !parts.join("").slice(-2 - text.length).includes("\n\n")) continue;
        const events = parts.join("").split("\n\n");
        parts = [events.pop()];
        for (const event of events) isOver = this.event(event) || isOver;
      }
    } catch (error) {
      if (document.hidden && control.signal.aborted) return false;
      throw error;
    } finally {
      clearInterval(watchdog);
      document.removeEventListener("visibilitychange", leave);
    }
  }

  event(text) {
    const fields = Object.fromEntries(text.split("\n").filter((line) => line.includes(": ")).map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
    if (fields.event === "snapshot" || fields.event === "changes") this.take(fields.event, JSON.parse(fields.data));
    if (fields.event === "fault") { this.cursor = ""; this.fault = JSON.parse(fields.data).error; throw new Error(this.fault); }
    return fields.event === "end" && this.view?.run.stand === "ended";
  }

  take(kind, news) {
    this.lastNews = Date.now();
    if (kind === "snapshot") this.view = news;
    else this.apply(news);
    this.cursor = news.cursor;
    try { this.show(kind === "snapshot" ? null : news); } catch (error) { reportError(error); }
  }

  apply(news) {
    const view = this.view;
    Object.assign(view.run, news.run);
    for (const step of news.added) view.steps[step.n] = step;
    for (const [n, facts] of Object.entries(news.steps)) Object.assign(view.steps[n], facts);
    for (const [n, report] of Object.entries(news.progress)) if (view.steps[n]) view.steps[n].progress = report;
    for (const name of ["questions", "planner"]) if (news[name].length) view[name] = news[name];
    view.revisions.push(...news.revisions);
    Object.assign(view, { seq: news.seq, at: news.at, graph: news.graph });
  }

  /** The time in the run now: what still runs grows without a message. */
  now() {
    const { view } = this;
    return view.run.stand === "running" && !this.isLost ? view.at + (Date.now() - this.lastNews) / 1000 : view.at;
  }

  // Showing
  show(news) {
    this.head_();
    this.wrong_();
    this.open_();
    if (!news || news.revisions.length) this.changes_();
    this.list();
    document.documentElement.dataset.ready = "1";
    if (this.selected !== null && (!news || news.steps[this.selected])) this.details(this.selected);
  }

  head_() {
    const { run } = this.view, total = Object.values(run.counts).reduce((a, b) => a + b, 0);
    const settled = this.settled = ["succeeded", "skipped", "cancelled", "superseded", ...BAD].reduce((sum, state) => sum + (run.counts[state] ?? 0), 0);
    const state = run.stand === "ended" ? run.status : run.stand;
    const goal = run.goal || (run.labels.command ?? []).slice?.(1).join(" ") || run.id;
    const asks = this.view.questions.filter((q) => q.answered_at === null && !q.why_void);
    const mark = asks.length && run.stand !== "ended" ? `‖ asks: ${asks[0].step || asks[0].text}` : run.stand === "running" ? `▶ ${settled}/${total}` : `${symbol(state)} ${words(state)}`;
    document.title = `${mark} · ${goal}`;
    const resume = ["interrupted", "waiting"].includes(run.stand) ? ["dagrun", "resume", run.id, ...(run.labels.again ?? [])].join(" ") : "";
    this.clock = make("span", { class: "clock" });
    const live = run.stand === "running" && !this.readOnly;
    fill(this.head, make("h1", {}, badge(state), " ", goal), run.reason && run.stand !== "running" ? make("p", { class: "reason" }, run.reason) : "",
      make("p", { class: "soft" }, `run ${run.id} · `, this.clock, ` · ${run.owner || "no process"}`, run.tokens ? ` · ${run.tokens} tokens` : "", run.cost ? ` · cost ${run.cost}` : "", run.began ? ` · began ${new Date(run.began * 1000).toLocaleString()}` : ""),
      progress(run.counts, total), make("p", {}, sorted(run.counts).map(([s, n]) => `${symbol(s)} ${n} ${words(s)}`).join(" · ")),
      resume ? make("p", {}, "It goes on with: ", make("code", {}, resume)) : "",
      live ? make("p", { class: "buttons" }, this.order_("suspend", "Suspend the run"), this.order_("cancel", "Cancel the run")) : "");
    this.tick();
  }

  /** A button that asks once more before it gives an order, and says if nobody takes it. */
  order_(what, label, step = null) {
    const button = make("button", { type: "button", class: what, click: async () => {
      if (!button.dataset.sure) {
        button.dataset.sure = "1";
        button.textContent = `Sure? ${label}`;
        setTimeout(() => { delete button.dataset.sure; button.textContent = label; }, 5000);
        return;
      }
      button.disabled = true;
      try {
        await post(`runs/${this.run}/${what}`, step === null ? {} : { step });
        button.textContent = "told";
        const before = this.view.seq;
        setTimeout(() => { if (this.view.seq === before && button.isConnected) button.textContent = "not taken after 10 s"; }, 10_000);
      } catch (error) { button.textContent = error.message; }
    } }, label);
    return button;
  }

  wrong_() {
    const bad = this.view.steps.filter((s) => BAD.includes(s.state) && s.gone === null);
    fill(this.wrong, ...(bad.length ? [make("h2", {}, "What went wrong"), make("ul", {}, ...bad.slice(0, 50).map((s) => make("li", {}, this.link(s), ` ${words(s.state)}: ${s.why || s.attempts.at(-1)?.failure?.message || ""}`)))] : []));
  }

  link(step) {
    return make("a", { href: `#step-${step.id}`, click: (event) => { event.preventDefault(); this.details(step.n); } }, step.id);
  }

  async open_() {
    const open = this.view.questions.filter((q) => q.answered_at === null && !q.why_void), ids = open.map((q) => q.id).join();
    const gone = [...this.open.querySelectorAll("[data-question]")].filter((e) => !open.some((q) => q.id === e.dataset.question));
    for (const element of gone) {
      const done = this.view.questions.find((q) => q.id === element.dataset.question);
      element.replaceChildren(make("p", {}, done?.answer ? `${words(done.answer.choice)} by ${done.answer.by || "somebody"}: ${done.text}` : `not open any more: ${done?.why_void ?? ""}`));
      element.removeAttribute("data-question");
      element.classList.add("done");
    }
    if (ids === this.asked) return;
    this.asked = ids;
    const whole = await Promise.all(open.map((q) => get(`runs/${this.run}/questions/${q.id}`).catch(() => null)));
    if (ids !== this.asked) return;
    const there = new Set([...this.open.querySelectorAll("[data-question]")].map((e) => e.dataset.question));
    if (!this.open.querySelector("h2") && ids) this.open.prepend(make("h2", {}, "Waiting for you"));
    this.open.append(...whole.filter((q) => q && !there.has(q.id)).map((q) => panel(this.run, q, this.readOnly, () => {})));
  }

  changes_() {
    const shown = this.view.revisions.filter((r) => !r.is_draft);
    const names = (ns) => ns.map((n) => this.view.steps[n]?.id).join(", ");
    fill(this.changes, ...(shown.length ? [make("h2", {}, "Changes of the plan"), ...shown.map((r) => make("details", { id: `revision-${r.number}` },
      make("summary", {}, `at ${span(r.at)}, by the ${r.origin}: ${r.reason || r.did}`), diff(r.diff),
      r.ran_on.length ? make("p", { class: "soft" }, `ran on meanwhile: ${names(r.ran_on)}`) : null))] : []));
  }

  // The table, which is the timeline: only the rows that can be seen are there
  list() {
    if (!this.view) return; // a reader may type before the first news
    const steps = this.view.steps, { counts } = this.view.run;
    fill(this.chips, ...sorted(counts).map(([state, count]) => make("button", { type: "button", class: `chip ${state}`, "aria-pressed": String(this.states.has(state)), click: () => {
      if (!this.states.delete(state)) this.states.add(state);
      this.list();
    } }, `${symbol(state)} ${count} ${words(state)}`)));
    const wanted = (s) => (!this.states.size || this.states.has(s.state)) && (!this.filter || `${s.id} ${s.tool}`.toLowerCase().includes(this.filter));
    const flat = Boolean(this.filter || this.states.size);
    let found = steps.filter((s) => s && wanted(s) && (flat || s.parent === null));
    const rank = (s) => { const at = ORDER.indexOf(s.state); return at < 0 ? 9 : at; };
    const wait = (s) => s.waits.reduce((sum, [, from, to]) => sum + ((to ?? this.now()) - from), 0);
    const keys = { live: (s) => [rank(s), rank(s) === 9 ? -(s.ended ?? 0) : s.n], plan: (s) => [s.n, 0], start: (s) => [s.started ?? Infinity, s.n], duration: (s) => [-((s.ended ?? this.now()) - (s.started ?? Infinity)), s.n], wait: (s) => [-wait(s), s.n] };
    const order = this.order === "live" && this.view.run.stand === "ended" ? "plan" : this.order;
    found = found.map((s) => [keys[order](s), s]).sort(([a], [b]) => a[0] - b[0] || a[1] - b[1]).map(([, s]) => s);
    this.shown = flat ? found : found.flatMap((s) => s.children && this.unfolded.has(s.n) ? [s, ...steps.slice(s.children[0], s.children[1] + 1)] : [s]);
    this.inner.style.height = `${this.shown.length * ROW}px`;
    this.rows.setAttribute("aria-rowcount", String(this.shown.length));
    this.rows.classList.toggle("short", this.shown.length < 18);
    this.paint();
  }

  paint() {
    if (!this.view || !this.shown) return;
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 5), count = Math.ceil((this.rows.clientHeight || 500) / ROW) + 10;
    const end = this.end = nice(Math.max(this.now(), 0.01)), focus = document.activeElement?.dataset?.n;
    fill(this.inner, ...this.shown.slice(first, first + count).map((step, at) => this.row(step, first + at, end)));
    if (focus !== undefined) this.inner.querySelector(`[data-n="${focus}"]`)?.focus({ preventScroll: true });
    fill(this.axis, ...[0, 1, 2, 3, 4].map((n) => { const mark = make("span", {}, n ? span((end * n) / 4) : "0"); mark.style.left = `${n * 25}%`; return mark; }));
  }

  row(step, at, end) {
    const bars = make("div", { class: "bars", role: "cell" }), now = this.now();
    const bar = (kind, from, to, title) => {
      const part = make("i", { class: kind, title });
      part.style.left = `${(from / end) * 100}%`;
      part.style.width = `max(2px, ${((Math.max(to, from) - from) / end) * 100}%)`;
      bars.append(part);
    };
    const calls = step.children ? this.view.steps.slice(step.children[0], Math.min(step.children[1], step.children[0] + 200) + 1) : [step];
    for (const one of calls) {
      for (const [reason, from, to, limit] of one.waits) bar(`w ${reason}`, from, to ?? now, `waits for ${reason === "slot" ? `a slot${limit ? ` of ${limit}` : ""}` : reason}: ${span((to ?? now) - from)}`);
      for (const a of one.attempts) bar(`b ${a.state ?? "running"}`, a.started, a.ended ?? now, `attempt ${a.number}: ${words(a.state ?? "running")}, ${span((a.ended ?? now) - a.started)}`);
      for (const a of one.attempts) if (a.hedge) bar("b hedge", a.hedge.started, a.hedge.ended ?? now, "second call");
    }
    if (step.gone === null) for (const r of this.view.revisions) if (!r.is_draft) bar("splice", r.at, r.at, `the plan was changed: ${r.reason}`);
    const waits = step.waits.at(-1), why = waits && waits[2] === null ? `waits for ${waits[0] === "slot" ? (waits[3] ?? "its turn") : waits[0]}` : step.progress ? [step.progress[0] !== null ? `${Math.round(step.progress[0] * 100)} %` : "", step.progress[1]].join(" ") : words(step.state);
    const toggle = step.children ? make("button", { type: "button", class: "fold", "aria-label": `elements of ${step.id}`, "aria-expanded": String(this.unfolded.has(step.n)), click: (event) => {
      event.stopPropagation();
      if (!this.unfolded.delete(step.n)) this.unfolded.add(step.n);
      this.list();
    } }, `${this.unfolded.has(step.n) ? "▾" : "▸"} ${step.children[1] - step.children[0] + 1}`) : null;
    const line = make("div", { role: "row", "aria-rowindex": at + 1, class: `row ${step.state}${step.parent !== null ? " element" : ""}${step.gone !== null ? " gone" : ""}`, "data-n": step.n, tabindex: -1, click: () => this.details(step.n) },
      make("span", { role: "cell", class: "state", title: words(step.state) }, symbol(step.state)), make("span", { role: "cell", class: "name", title: step.id }, step.id, toggle),
      make("span", { role: "cell", class: "why", title: step.why || why }, why), bars, make("span", { role: "cell", class: "num" }, step.started === null ? "" : span((step.ended ?? now) - step.started)));
    line.style.top = `${at * ROW}px`;
    return line;
  }

  // One step
  async details(n) {
    const step = this.view.steps[n];
    if (!step) return;
    const isNew = this.selected !== n;
    this.selected = n;
    if (isNew) { this.back = document.activeElement; history.replaceState(null, "", `#step-${encodeURIComponent(step.id)}`); }
    const whole = await get(`runs/${this.run}/steps/${n}`).catch(() => step);
    if (this.selected !== n) return;
    const links = (ns) => ns.flatMap((m, at) => [at ? ", " : "", this.view.steps[m] ? this.link(this.view.steps[m]) : ""]);
    const users = this.view.steps.filter((s) => s.needs.includes(n)).map((s) => s.n);
    const attempts = step.attempts.map((a) => make("li", {}, `${symbol(a.state ?? "running")} attempt ${a.number}, ${a.tool}, ${span((a.ended ?? this.now()) - a.started)}${a.failure ? `: ${a.failure.message ?? a.failure.kind}` : ""}${a.row ? ` → ${a.row}` : ""}`));
    const close = make("button", { type: "button", class: "close", "aria-label": "close", click: () => this.leave() }, "×");
    const live = this.view.run.stand === "running" && !this.readOnly && !["succeeded", "skipped", "cancelled", "superseded", ...BAD].includes(step.state);
    fill(this.drawer, close, make("h2", { id: "step-name" }, badge(step.state), " ", step.id), make("p", {}, step.description), make("p", { class: "soft" }, `${step.tool} (${step.effect})${step.why ? ` · ${step.why}` : ""}`),
      step.needs.length ? make("p", {}, "needs ", ...links(step.needs)) : "", users.length ? make("p", {}, "used by ", ...links(users.slice(0, 50))) : "",
      make("h3", {}, "Arguments"), value(whole.args), make("h3", {}, "Output"), value(whole.output), attempts.length ? make("h3", {}, "Attempts") : "", make("ul", {}, ...attempts),
      live ? make("p", { class: "buttons" }, this.order_("cancel", "Cancel this step", step.id)) : "");
    this.drawer.hidden = false;
    if (isNew) close.focus();
  }

  leave() {
    this.selected = null;
    this.drawer.hidden = true;
    history.replaceState(null, "", location.pathname);
    this.back?.focus?.();
  }

  key(event) {
    if (event.target.matches("input, select, textarea")) return;
    if (event.key === "Escape" && !this.drawer.hidden) this.leave();
    else if (event.key === "/") { event.preventDefault(); this.text.focus(); }
    else if (["j", "k"].includes(event.key)) this.move(event.key === "j" ? 1 : -1);
    else if (event.key === "Enter" && event.target.dataset.n !== undefined) this.details(Number(event.target.dataset.n));
  }

  move(by) {
    if (!this.shown) return;
    const at = this.shown.findIndex((s) => String(s.n) === document.activeElement?.dataset?.n), to = Math.max(0, Math.min(this.shown.length - 1, at + by));
    if (to * ROW < this.rows.scrollTop || (to + 1) * ROW > this.rows.scrollTop + this.rows.clientHeight) this.rows.scrollTop = to * ROW - 100;
    this.paint();
    this.inner.querySelector(`[data-n="${this.shown[to]?.n}"]`)?.focus({ preventScroll: true });
  }

  /** What moves by itself: the clock, bars that grow, deadlines, and how old the news is. */
  tick() {
    this.lost.hidden = !this.isLost;
    this.lost.textContent = this.fault ?? `not connected, last news ${span(Math.round((Date.now() - this.lastNews) / 1000))} ago; what stands here was true then`;
    if (!this.view) return;
    this.clock.textContent = span(this.now());
    for (const line of document.querySelectorAll("[data-deadline]")) {
      const left = Number(line.dataset.deadline) - this.now();
      line.textContent = left > 0 ? `in ${span(Math.ceil(left))} the answer is: ${words(line.dataset.default || "deny")}` : "the time for an answer is over";
    }
    if (this.view.run.stand === "running" && !document.hidden) this.paint();
  }
}

/** The next round number, so that the axis moves seldom. */
function nice(seconds) {
  const step = 10 ** Math.floor(Math.log10(seconds));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * step).find((end) => end >= seconds * 1.0001) ?? 10 * step;
}

takeToken();
const found = /\/r\/([^/]+)$/.exec(location.pathname);
if (!found) list();
else {
  const shown = new RunPage(found[1]);
  get("runs?limit=1").then((facts) => { shown.readOnly = facts.read_only; }).catch(() => {}).then(() => shown.follow());
  setInterval(() => shown.tick(), calm.matches ? 1000 : 250);
  addEventListener("hashchange", () => {
    const step = shown.view?.steps.find((s) => `#step-${encodeURIComponent(s.id)}` === location.hash);
    if (step) shown.details(step.n);
  });
}
