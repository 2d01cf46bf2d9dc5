// One run while it goes on: its head, what went wrong, what it asks, its graph and steps, and the changes of its plan.
import { WAITS } from "./looks.js";
import { ask, BAD, badge, diff, fill, get, look, make, OPEN, page, post, progress, Refused, runLook, save, sorted, span, value } from "./parts.js";
import { Graph } from "./graph.js";
import { panel } from "./panel.js";
import { Rows } from "./rows.js";

const HIDDEN_EVERY = 10_000, SILENT = 25_000, TOLD = 10_000, QUEUE_EVERY = 3_000; // milliseconds
const pause = (ms) => new Promise((go) => setTimeout(go, ms));

export class RunPage {
  constructor(main, run) {
    this.run = run;
    this.cursor = "";
    this.view = null;
    this.lastNews = 0; // when the view was true, on the clock of the browser
    this.asked = "";
    this.selected = null;
    const id = (name) => (this[name] = make("section", { id: name }));
    this.lost = make("p", { id: "lost", role: "status", hidden: true });
    this.rows = new Rows(() => this.now(), (n) => this.details(n));
    this.graph = new Graph(run, (n) => this.details(n), (steps, name) => this.rows.pick(steps, name));
    this.drawer = make("aside", { id: "step", role: "dialog", "aria-labelledby": "step-name", hidden: true });
    this.facts = make("div");
    this.buttons = make("p.buttons");
    this.clock = make("b.clock");
    fill(main, make("nav", make("a", { href: page(".") }, "← All runs")), this.lost, make("header", { id: "head" }, this.facts, this.buttons), id("wrong"), id("open"),
      this.graph.element, this.rows.element, id("changes"), this.drawer);
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.named());
    // What is shown stays while a button of the pointer is down: a click on what was replaced meanwhile would be lost.
    addEventListener("pointerdown", () => { this.isDown = true; });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { this.isDown = false; if (this.isLate) this.show(null); }, 50));
    setInterval(() => this.tick(), matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
  }

  // Keeping up with the run ----------------------------------------------------------------------------------

  async follow() {
    this.readOnly = (await get("runs?limit=1").catch(() => ({}))).read_only;
    let wait = 1000;
    for (;;) {
      try {
        if (document.hidden && this.cursor) await this.poll();
        else if (await this.stream()) return;
        wait = 1000;
      } catch (error) {
        if (error instanceof Refused && [401, 404].includes(error.status) && !this.view) throw error;
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

  /** Read the stream until it ends; return whether nothing more will come: if not, it is to be opened again at once. */
  async stream() {
    const control = new AbortController();
    const leave = () => document.hidden && control.abort();
    document.addEventListener("visibilitychange", leave);
    let heard = Date.now(), isOver = false, isLast = false;
    const watchdog = setInterval(() => Date.now() - heard > SILENT && control.abort(), 1000);
    try {
      const response = await ask(`runs/${this.run}/stream?after=${this.cursor}`, { signal: control.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let parts = [];
      for (;;) {
        const { value: text, done } = await reader.read();
        if (done) { if (!isOver && !isLast) throw new Error("the stream ended"); return isOver; }
        heard = Date.now();
        this.isLost = false;
        parts.push(text);
        if (!text.includes("\n") || !parts.join("").slice(-2 - text.length).includes("\n\n")) continue;
        const events = parts.join("").split("\n\n");
        parts = [events.pop()];
        for (const event of events) { isOver = this.event(event) || isOver; isLast = event.startsWith("event: again\n"); }
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
    if (fields.event === "end") this.graph.end(JSON.parse(fields.data).svg);
    if (fields.event === "fault") { this.cursor = ""; this.fault = JSON.parse(fields.data).error; throw new Error(this.fault); }
    return fields.event === "end" && this.view?.run.state === "ended";
  }

  take(kind, news) {
    this.lastNews = Date.now();
    if (kind === "snapshot") this.view = news;
    else this.apply(news);
    this.cursor = news.cursor;
    try { this.show(kind === "snapshot" ? null : news); } catch (error) { reportError(error); }
  }

  apply(news) {
    const { view } = this;
    Object.assign(view.run, news.run);
    for (const step of news.added) view.steps[step.n] = step;
    for (const [n, facts] of Object.entries(news.steps)) Object.assign(view.steps[n], facts);
    for (const group of news.plain) takeRows(view.steps, group);
    for (const [n, report] of Object.entries(news.progress)) if (view.steps[n]) view.steps[n].progress = report;
    for (const name of ["questions", "planner"]) if (news[name].length) view[name] = news[name];
    view.revisions.push(...news.revisions);
    Object.assign(view, { seq: news.seq, at: news.at, graph: news.graph, left: news.left });
  }

  /** The time in the run now: what still runs grows without a message. */
  now() {
    const { view } = this;
    return view.run.state === "running" && !this.isLost ? view.at + (Date.now() - this.lastNews) / 1000 : view.at;
  }

  // Showing --------------------------------------------------------------------------------------------------

  show(news) {
    this.isLate = this.isDown;
    if (this.isDown) return;
    this.showHead();
    this.showWrong();
    this.showOpen();
    if (!news || news.revisions.length) this.showChanges();
    this.graph.show(this.view);
    this.rows.show(this.view);
    if (!news && !document.documentElement.dataset.ready) this.named();
    document.documentElement.dataset.ready = "1";
    if (this.selected !== null && news?.steps[this.selected]) this.details(this.selected);
  }

  showHead() {
    const { run, questions, planner } = this.view, total = Object.values(run.counts).reduce((a, b) => a + b, 0), state = runLook({ ...run, queue: this.queue });
    const settled = sorted(run.counts).reduce((sum, [s, count]) => sum + (OPEN.includes(s) ? 0 : count), 0);
    const goal = run.goal || (run.labels.command ?? []).slice?.(1).join(" ") || run.id, asks = questions.filter(isOpen);
    const mark = asks.length && run.state !== "ended" ? `‖ asks: ${asks[0].step || asks[0].text}` : run.state === "running" ? `▶ ${settled}/${total}` : `${state[0]} ${state[1]}`;
    document.title = `${mark} · ${goal}`;
    this.lookAtQueue(run);
    const resume = ["interrupted", "waiting"].includes(run.state) && !this.queue ? ["dagrun", "resume", run.id, ...(run.labels.again ?? [])].join(" ") : "";
    const isLive = run.state === "running" && !this.readOnly, work = planner.at(-1);
    const facts = [run.id && `run ${run.id}`, this.queue?.words ?? (run.owner || "no process"), run.tokens && `${run.tokens.toLocaleString("en")} tokens`, run.cost && `cost ${+run.cost.toFixed(4)}`, run.began && `began ${new Date(run.began * 1000).toLocaleString()}`];
    fill(this.facts, make("h1", badge(state), " ", goal), run.reason && run.state !== "running" ? make("p.reason", run.reason) : null,
      this.queue?.reason && this.queue.reason !== run.reason ? make("p.reason", this.queue.reason) : null,
      make("p.soft", this.clock, ` · ${facts.filter(Boolean).join(" · ")}`),
      progress(run.counts, total),
      work && work.ended === null && run.state === "running" ? make("p.asks", `The planner ${work.kind === "draft" ? "writes the plan" : `is asked for a change, because of ${work.triggers.join(", ")}`}; the rest runs on`) : null,
      resume ? make("p", "It goes on with: ", make("code", resume)) : null);
    const orders = isLive ? "live" : this.readOnly || !this.queue || run.state === "ended" ? "" : this.queue.status;
    const last = orders && this.order("cancel", "Cancel the run"), first = { live: ["suspend", "Suspend the run"], stuck: ["requeue", "Put the run back into the queue"] }[orders];
    if (this.orders !== orders) fill(this.buttons, ...(first ? [this.order(...first)] : []), ...(last ? [last] : []), save("Download the report", `runs/${this.run}/report.html`, `${this.run}.html`));
    this.orders = orders;
    this.tick();
  }

  /** Ask where a submitted run stands: whenever another process has it, and while none has it now and then. */
  async lookAtQueue(run) {
    const is = `${run.state} ${run.owner}`, isDue = run.state !== "ended" && run.state !== "running" && Date.now() - this.looked > QUEUE_EVERY;
    if (this.lookedAt === is && !(isDue && this.queue)) return;
    this.lookedAt = is;
    this.looked = Date.now();
    const { queue } = await get(`runs/${this.run}/queue`).catch(() => ({ queue: null }));
    const isNew = JSON.stringify(queue) !== JSON.stringify(this.queue ?? null);
    this.queue = queue;
    if (isNew && !this.isDown) this.showHead();
  }

  /** A button that asks once more before it gives an order, and says if nobody takes it. */
  order(what, label, step = null) {
    const button = make("button", { class: what, click: async () => {
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
        this.lookedAt = "";
        if (this.queue) this.lookAtQueue(this.view.run);
        const before = this.view.seq;
        setTimeout(() => { if (this.view.seq === before && button.isConnected) button.textContent = "not taken after 10 s"; }, TOLD);
      } catch (error) { button.textContent = error.message; }
    } }, label);
    return button;
  }

  showWrong() {
    const bad = this.view.steps.filter((s) => BAD.includes(s.state) && s.gone === null);
    const reason = (s) => s.why || s.attempts.at(-1)?.failure?.message || "";
    fill(this.wrong, ...(bad.length ? [make("h2", "What went wrong"), make("ul", ...bad.slice(0, 50).map((s) => make("li", this.link(s), ` ${look(s.state)[1]}: ${reason(s)}`)))] : []));
  }

  link(step) {
    return make("a", { href: `#step-${step.id}`, click: (event) => { event.preventDefault(); this.details(step.n); } }, step.id);
  }

  async showOpen() {
    const open = this.view.questions.filter(isOpen), ids = open.map((q) => q.id).join(), there = () => [...this.open.querySelectorAll("[data-question]")];
    for (const element of there().filter((e) => !open.some((q) => q.id === e.dataset.question))) {
      const done = this.view.questions.find((q) => q.id === element.dataset.question);
      fill(element, make("p", done?.answer ? `${done.answer.choice} by ${done.answer.by || "somebody"}: ${done.text}` : `closed: ${done?.why_void ?? ""}`));
      element.removeAttribute("data-question");
      element.classList.add("done");
    }
    if (ids === this.asked) return;
    this.asked = ids;
    const whole = await Promise.all(open.map((q) => get(`runs/${this.run}/questions/${q.id}`).catch(() => null)));
    if (ids !== this.asked) return;
    if (!this.open.querySelector("h2") && ids) this.open.prepend(make("h2", "Waiting for you"));
    const known = new Set(there().map((e) => e.dataset.question));
    this.open.append(...whole.filter((q) => q && !known.has(q.id)).map((q) => panel(this.run, q, this.readOnly, () => {})));
  }

  showChanges() {
    const shown = this.view.revisions.filter((r) => !r.is_draft), names = (ns) => ns.map((n) => this.view.steps[n]?.id).join(", ");
    fill(this.changes, ...(shown.length ? [make("h2", "Changes of the plan"), ...shown.map((r) => make("details", { id: `revision-${r.number}` },
      make("summary", `at ${span(r.at)}, by the ${r.origin}: ${r.reason || r.did}`), diff(r.diff),
      r.ran_on.length ? make("p.soft", `ran on: ${names(r.ran_on)}`) : null))] : []));
  }

  // One step -------------------------------------------------------------------------------------------------

  /** Show what the address names: a step, or a change of the plan. */
  named() {
    const step = this.view?.steps.find((s) => `#step-${encodeURIComponent(s.id)}` === location.hash);
    if (step) this.details(step.n);
    document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
  }

  async details(n) {
    const step = this.view.steps[n], isNew = this.selected !== n;
    if (!step) return;
    this.selected = n;
    if (isNew) { this.back = document.activeElement; history.replaceState(null, "", `#step-${encodeURIComponent(step.id)}`); }
    const whole = await get(`runs/${this.run}/steps/${n}`).catch(() => step);
    if (this.selected !== n) return;
    const links = (name, ns) => ns.length ? make("p", `${name} `, ...ns.slice(0, 50).flatMap((m, at) => [at ? ", " : "", this.view.steps[m] ? this.link(this.view.steps[m]) : ""])) : null;
    const items = (name, list) => list.length ? make("div", make("h3", name), make("ul", ...list.map((item) => make("li", item)))) : null;
    const users = this.view.steps.filter((s) => s.needs.includes(n)).map((s) => s.n);
    const attempts = step.attempts.map((a) => `${look(a.state ?? "running")[0]} attempt ${a.number}, ${a.tool}, ${span((a.ended ?? this.now()) - a.started)}${a.failure ? `: ${a.failure.message ?? a.failure.kind}` : ""}${a.row ? ` → ${a.row}` : ""}`);
    const waits = step.waits.map(([reason, from, to, limit]) => `${span((to ?? this.now()) - from)} ${WAITS[reason]}${limit ? ` (${limit} was full)` : ""}`);
    const files = (whole.artifacts ?? []).map((f) => save(`${f.name || f.sha256.slice(0, 12)}, ${f.bytes} bytes`, `runs/${this.run}/artifacts/${f.sha256}`, f.name || f.sha256.slice(0, 12)));
    const close = make("button", { class: "close", "aria-label": "close", click: () => this.leave() }, "×");
    const isLive = this.view.run.state === "running" && !this.readOnly && OPEN.includes(step.state);
    fill(this.drawer, close, make("h2", { id: "step-name" }, badge(look(step.state)), " ", step.id), make("p", step.description), make("p.soft", `${step.tool} (${step.effect})${step.why ? ` · ${step.why}` : ""}`),
      links("needs", step.needs), links("used by", users), make("h3", "Arguments"), value(whole.args), make("h3", "Output"), value(whole.output),
      items("Files", files), items("Attempts", attempts), items("Waits", waits),
      isLive ? make("p.buttons", this.stop = isNew ? this.order("cancel", "Cancel this step", step.id) : this.stop) : null);
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
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && !this.drawer.hidden) this.leave();
    else if (event.key === "/") { event.preventDefault(); this.rows.text.focus(); }
    else if (["j", "k"].includes(event.key)) this.rows.move(event.key === "j" ? 1 : -1);
    else if (event.key === "Enter" && event.target.matches(".row")) this.details(Number(event.target.dataset.n));
  }

  /** What moves by itself: the clock, bars that grow, deadlines, and how old the news is. */
  tick() {
    this.lost.hidden = !this.isLost;
    this.lost.textContent = this.fault ?? `not connected, last news ${span(Math.round((Date.now() - this.lastNews) / 1000))} ago; what stands here was true then`;
    if (!this.view) return;
    if (this.queue && !document.hidden) this.lookAtQueue(this.view.run);
    const { left, at, run } = this.view, now = this.now(), rest = left === null || left === undefined ? -1 : left - (now - at);
    this.clock.textContent = rest > 0 && run.state === "running" ? `${span(now)}, at least ${span(Math.ceil(rest))} to go` : span(now);
    for (const line of document.querySelectorAll("[data-deadline]")) {
      const until = Number(line.dataset.deadline) - now;
      line.textContent = until > 0 ? `in ${span(Math.ceil(until))} the answer is: ${line.dataset.default || "deny"}` : "the time for an answer is over";
    }
    if (run.state === "running" && !document.hidden && !this.isDown) this.rows.paint();
  }
}

/** Take the rows of steps of which there is nothing to say but when, in microseconds. */
function takeRows(steps, { state, wait, rows }) {
  const width = { ready: 2, running: 3, succeeded: 4 }[state];
  for (let at = 0; at < rows.length; at += width) {
    const [n, due, waited, took] = rows.slice(at, at + width), step = steps[n], ready = due / 1e6;
    Object.assign(step, { state, ready, started: null, ended: null, waits: [], attempts: [], why: "", progress: null });
    if (waited === undefined) { step.waits.push(["slot", ready, null]); continue; }
    step.started = (due + waited) / 1e6;
    if (took !== undefined) step.ended = (due + waited + took) / 1e6;
    if (wait !== null) step.waits.push(["slot", ready, step.started, wait]);
    step.attempts.push({ number: 1, tool: step.tool, started: step.started, ended: step.ended, state: took === undefined ? null : state });
  }
}

const isOpen = (question) => question.answered_at === null && !question.why_void;
