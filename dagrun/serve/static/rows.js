// The table of steps, which is the timeline: only the rows that can be seen are there.
import { WAITS } from "./looks.js";
import { fill, look, make, OPEN, sorted, span } from "./parts.js";

const ROW = 28, MORE = 6, CALLS = 200, IDLE = 0.2, FINE = 1e-5; // pixels; rows beyond those seen; elements in one row; share of the run; seconds of the shortest range
const LONG = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400]; // seconds between marks of the axis

export class Rows {
  constructor(now, open) {
    this.now = now;
    this.open = open;
    this.filter = "";
    this.states = new Set();
    this.only = null; // the steps of a box of the graph, and its name
    this.order = "live";
    this.unfolded = new Set();
    this.range = null; // what a person looks at, in seconds; the whole run without it
    this.text = make("input", { type: "search", placeholder: "filter steps  ( / )", "aria-label": "filter steps", input: () => { this.filter = this.text.value.toLowerCase(); this.list(); } });
    const order = make("select", { "aria-label": "order of steps", change: () => { this.order = order.value; this.list(); } },
      ...["live", "plan", "start", "duration", "wait"].map((name) => make("option", { value: name }, `${name} order`)));
    this.chips = make("div.chips", { role: "group", "aria-label": "states" });
    this.axis = make("div.axis", { title: "Drag over a range to look at it", pointerdown: (event) => this.drag(event) });
    this.inner = make("div.inner", { role: "rowgroup" });
    this.box = make("div", { id: "rows", role: "table", "aria-label": "steps", tabindex: 0, scroll: () => this.paint() }, this.inner);
    this.element = make("section", { id: "time" }, make("h2", "Steps and time"), make("div.tools", this.text, order), this.chips, this.axis, this.box);
    addEventListener("resize", () => this.paint());
  }

  show(view) {
    this.view = view;
    this.list();
  }

  /** Show the steps of a box of the graph alone. */
  pick(steps, name) {
    this.only = { steps, name };
    this.box.scrollTop = 0;
    this.list();
    this.element.scrollIntoView();
  }

  list() {
    if (!this.view) return; // a reader may type before the first news
    const { steps, run } = this.view, now = this.now();
    const chip = (text, isOn, click) => make("button", { class: "chip", "aria-pressed": String(isOn), click: () => { click(); this.list(); } }, text);
    fill(this.chips, this.only ? chip(`only ${this.only.name} ×`, true, () => { this.only = null; }) : null, ...sorted(run.counts).map(([state, count]) =>
      chip(`${look(state)[0]} ${count} ${look(state)[1]}`, this.states.has(state), () => this.states.delete(state) || this.states.add(state))));
    const flat = Boolean(this.filter || this.states.size || this.only);
    const wanted = (s) => (!this.states.size || this.states.has(s.state)) && (!this.only || this.only.steps.has(s.n))
      && (!this.filter || `${s.id} ${s.tool}`.toLowerCase().includes(this.filter));
    const took = (s) => (s.ended ?? now) - (s.started ?? Infinity);
    const waited = (s) => s.waits.reduce((sum, [, from, to]) => sum + ((to ?? now) - from), 0);
    const rank = (s) => { const at = OPEN.indexOf(s.state); return at < 0 ? 9 : at; };
    const keys = { live: (s) => [rank(s), rank(s) === 9 ? -(s.ended ?? 0) : s.n], plan: (s) => [s.n, 0], start: (s) => [s.started ?? Infinity, s.n], duration: (s) => [-took(s), s.n], wait: (s) => [-waited(s), s.n] };
    const key = keys[this.order === "live" && run.state === "ended" ? "plan" : this.order];
    const found = steps.filter((s) => s && wanted(s) && (flat || s.parent === null)).map((s) => ([key(s), s]))
      .sort(([a], [b]) => a[0] - b[0] || a[1] - b[1]).map(([, s]) => s);
    this.shown = flat ? found : found.flatMap((s) => s.children && this.unfolded.has(s.n) ? [s, ...steps.slice(s.children[0], s.children[1] + 1)] : [s]);
    this.inner.style.height = `${this.shown.length * ROW}px`;
    this.box.setAttribute("aria-rowcount", String(this.shown.length));
    this.box.classList.toggle("short", this.shown.length < 18);
    this.paint();
  }

  paint() {
    if (!this.shown) return;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - MORE), count = Math.ceil((this.box.clientHeight || 500) / ROW) + 2 * MORE;
    const isOpen = this.view.run.state === "running", end = Math.max(isOpen ? this.now() : this.view.at, 1e-3);
    this.fold(end);
    [this.from, this.to] = this.range ?? [0, isOpen && !this.gaps.length ? nice(end) : end];
    const focus = this.inner.contains(document.activeElement) && document.activeElement.dataset.n;
    fill(this.inner, ...this.shown.slice(first, first + count).map((step, at) => this.row(step, first + at)));
    if (focus) this.inner.querySelector(`[data-n="${focus}"]`)?.focus({ preventScroll: true });
    if (!this.isDragged) fill(this.axis, ...this.marks());
  }

  /** Find the long times in which nothing ran: they are drawn short, so that bursts of work hours apart can be seen. */
  fold(end) {
    const calls = this.view.steps.flatMap((s) => s.attempts.map((c) => [c.started, c.ended ?? end])).sort(([a], [b]) => a - b);
    const gaps = [];
    let free = 0;
    for (const [from, to] of [...calls, [end, end]]) {
      if (from - free > end * IDLE) gaps.push([free, from]);
      free = Math.max(free, to);
    }
    const busy = end - gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    this.gaps = calls.length ? gaps : [];
    this.short = (busy || end) * 0.1; // seconds of work that a gap is as wide as
  }

  /** A time without most of the gaps before it. */
  folded(time) {
    return this.gaps.reduce((sum, [from, to]) => sum - Math.max(0, Math.min(time, to) - from) * (1 - this.short / (to - from)), time);
  }

  /** The share of a time on the axis, in percent. */
  at(time) {
    const from = this.folded(this.from);
    return ((this.folded(time) - from) / (this.folded(this.to) - from)) * 100;
  }

  /** The time at a share of the axis. */
  time(share) {
    let [low, high] = [this.from, this.to];
    for (let turn = 0; turn < 40; turn++) {
      const middle = (low + high) / 2;
      if (this.at(middle) < share * 100) low = middle; else high = middle;
    }
    return low;
  }

  bar(kind, from, to, title) {
    if (to < this.from || from > this.to) return null;
    const bar = make("i", { class: kind, title }), left = this.at(Math.max(from, this.from));
    bar.style.left = `${left}%`;
    bar.style.width = `${Math.max(0, this.at(Math.min(to, this.to)) - left)}%`;
    return bar;
  }

  bars(step, now) {
    const bars = [];
    const call = (c, who, more) => {
      const [, word, kind] = look(c.state ?? "running"), to = c.ended ?? now;
      bars.push(this.bar(`b ${kind}${more}${c.ended === null ? " goes" : ""}`, c.started, to, `${who}: ${word}, ${span(to - c.started)}`));
      if (c.hedge) bars.push(this.bar("b hedge", c.hedge.started, c.hedge.ended ?? now, "second call"));
    };
    const family = step.children ? this.view.steps.slice(step.children[0], Math.min(step.children[1] + 1, step.children[0] + CALLS)) : [];
    if (family.length && step.started !== null) call({ started: step.started, ended: step.ended, state: step.state }, step.id, " frame");
    for (const one of [...(this.unfolded.has(step.n) ? [] : family), step]) {
      for (const [reason, from, to, limit] of one.waits) bars.push(this.bar(`w ${reason}`, from, to ?? now, `waits ${WAITS[reason]}${limit ? ` (${limit} was full)` : ""}: ${span((to ?? now) - from)}`));
      for (const c of one.attempts) call(c, `${one.id}, call ${c.number}`, "");
    }
    for (const r of this.view.revisions) if (!r.is_draft) bars.push(this.bar("splice", r.at, r.at, `the plan was changed: ${r.reason || r.did}`));
    return bars.filter(Boolean);
  }

  /** What a step does now, in words. */
  doing(step) {
    const wait = step.waits.at(-1);
    if (wait && wait[2] === null) {
      const full = step.limits.filter((name) => { const [taken, all] = this.view.run.slots?.[name] ?? [0, 1]; return taken >= all; });
      return wait[0] === "slot" && full.length ? `waits for ${full.map((name) => `${name} (${this.view.run.slots[name].join(" of ")})`).join(", ")}` : `waits ${WAITS[wait[0]]}`;
    }
    if (step.progress) return [step.progress[0] === null ? "" : `${Math.round(step.progress[0] * 100)} %`, step.progress[1]].join(" ");
    return step.started !== null && step.state !== "running" ? step.why || step.tool : look(step.state)[1];
  }

  row(step, place) {
    const [sign, word, kind] = look(step.state), now = this.now(), isOpen = this.unfolded.has(step.n), why = this.doing(step);
    const fold = step.children ? make("button", { class: "fold", "aria-label": `elements of ${step.id}`, "aria-expanded": String(isOpen), click: (event) => {
      event.stopPropagation();
      if (!this.unfolded.delete(step.n)) this.unfolded.add(step.n);
      this.list();
    } }, `${isOpen ? "▾" : "▸"} ${step.children[1] - step.children[0] + 1}`) : null;
    const row = make("div", { role: "row", "aria-rowindex": place + 1, class: `row ${step.state} ${kind}${step.parent !== null ? " element" : ""}${step.gone !== null ? " gone" : ""}`, "data-n": step.n, tabindex: -1, click: () => this.open(step.n) },
      make("span", { role: "cell", class: "state", title: word }, sign), make("span", { role: "cell", class: "name", title: step.id }, step.id, fold),
      make("span", { role: "cell", class: "why", title: step.why || why }, why), make("div.bars", { role: "cell" }, ...this.bars(step, now)),
      make("span", { role: "cell", class: "num" }, step.started === null ? "" : span((step.ended ?? now) - step.started)));
    row.style.top = `${place * ROW}px`;
    return row;
  }

  /** Move to a row by the keyboard. */
  move(by) {
    if (!this.shown?.length) return;
    const at = this.shown.findIndex((s) => String(s.n) === document.activeElement?.dataset?.n), to = Math.max(0, Math.min(this.shown.length - 1, at + by));
    if (to * ROW < this.box.scrollTop || (to + 1) * ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = to * ROW - 100;
    this.paint();
    this.inner.querySelector(`[data-n="${this.shown[to].n}"]`)?.focus({ preventScroll: true });
  }

  // The axis
  marks() {
    const length = this.folded(this.to) - this.folded(this.from), most = Math.max(2, Math.min(6, Math.floor(this.axis.clientWidth / 70)));
    const power = 10 ** Math.floor(Math.log10(length / most)), fits = (one) => one * most >= length;
    const step = length > 90 ? LONG.find(fits) ?? 86400 * Math.ceil(length / 86400 / most) : [1, 2, power < 0.01 ? 5 : 2.5, 5, 10].map((one) => one * power).find(fits);
    const text = (time) => !time ? "0" : length > 90 ? span(time) : this.to < 1 ? `${+(time * 1000).toFixed(3)} ms` : `${+time.toFixed(6)} s`; // no two marks read alike
    const marks = [], put = (element, time) => { element.style.left = `${this.at(time)}%`; marks.push(element); };
    const next = (time) => Math.ceil(time / step - 1e-9) * step, gapAt = (time) => this.gaps.find(([from, to]) => time > from && time < to);
    const gaps = this.gaps.filter(([from, to]) => from >= this.from && to <= this.to).map(([from, to]) => [(from + to) / 2, to - from]);
    const isFree = (time) => !gaps.some(([middle]) => Math.abs(this.at(middle) - this.at(time) - 1500 / this.axis.clientWidth) < 5500 / this.axis.clientWidth); // both are texts of some 60 pixels
    for (let time = next(this.from); this.at(time) < 95; time = next(gapAt(time + step)?.[1] ?? time + step)) if (isFree(time)) put(make("span", text(time)), time);
    for (const [middle, length] of gaps) put(make("b.gap", { title: "nothing ran" }, `⋯ ${span(length)}`), middle);
    for (const work of this.view.planner) {
      const prompts = [...new Set(work.calls.map((call) => call.prompt))].filter(Boolean).join(", ");
      const bar = this.bar("planner", work.started, work.ended ?? this.now(), `the planner ${work.kind === "draft" ? "writes the plan" : "is asked for a change"}${work.result ? `: ${work.result}` : ""}${prompts && `, prompt ${prompts}`}`);
      if (bar) marks.push(bar);
    }
    for (const r of this.view.revisions) if (!r.is_draft && r.at >= this.from && r.at <= this.to) put(make("a.splice", { href: `#revision-${r.number}`, title: r.reason || r.did, "aria-label": `change ${r.number} of the plan` }, "▼"), r.at);
    if (this.range) marks.push(make("button", { click: () => { this.range = null; this.paint(); } }, "whole run"));
    return marks;
  }

  drag(event) {
    if (!this.shown || event.button || event.target.closest("a, button")) return;
    const place = this.axis.getBoundingClientRect(), start = event.clientX, band = make("i.band");
    const share = (x) => Math.max(0, Math.min(1, (x - place.left) / place.width));
    const ends = (x) => [share(start), share(x)].sort((a, b) => a - b);
    const move = (next) => { const [a, b] = ends(next.clientX); band.style.left = `${a * 100}%`; band.style.width = `${(b - a) * 100}%`; };
    const done = (next) => {
      removeEventListener("pointermove", move);
      const [a, b] = ends(next.clientX);
      this.isDragged = false;
      const range = [this.time(a), this.time(b)];
      if (b - a > 0.005 && range[1] - range[0] > FINE) this.range = range;
      this.paint();
    };
    this.isDragged = true;
    this.axis.append(band);
    addEventListener("pointermove", move);
    addEventListener("pointerup", done, { once: true });
  }
}

/** The next round number, so that the axis of a run that goes on moves seldom. */
function nice(seconds) {
  const power = 10 ** Math.floor(Math.log10(Math.max(seconds, 0.01)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((end) => end >= seconds * 1.0001) ?? 10 * power;
}
