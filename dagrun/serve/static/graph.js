// The graph of a run: drawn by the server when steps come or go; states are painted here, as they change.
import { STATES, WORST } from "./looks.js";
import { drawing, fill, look, make, sorted, span, svgOf } from "./parts.js";

const DRAW_EVERY = 1_000, PAINT_EVERY = 300; // milliseconds

export class Graph {
  constructor(run, open, only) {
    this.run = run;
    this.drawn = -1; // the graph of the view that was drawn
    this.note = make("p.soft");
    this.legend = make("ul.legend", { "aria-label": "Legend" });
    this.box = make("div.scroll", { tabindex: 0, click: (event) => {
      const box = event.target.closest("a.box");
      if (!box) return;
      event.preventDefault();
      if (box.dataset.steps) only(new Set(ranges(box.dataset.steps)), box.querySelector(".name").textContent);
      else open(Number(box.dataset.n));
    } });
    this.element = make("section", { id: "graph", hidden: true }, make("h2", "Graph"), this.note, this.legend, this.box);
  }

  show(view) {
    this.view = view;
    this.paintSoon ??= setTimeout(() => { this.paintSoon = undefined; this.paint(); }, PAINT_EVERY);
    // The drawing of a run that has ended comes with the end of the stream: the server may be gone after it.
    if (view.graph === this.drawn || this.drawSoon || view.run.state === "ended") return;
    this.drawSoon = setTimeout(() => this.draw(), this.drawn < 0 ? 0 : DRAW_EVERY);
  }

  async draw() {
    const { graph } = this.view;
    try {
      this.put(await drawing(`runs/${this.run}/graph.svg`));
      this.drawn = graph;
    } catch (error) { this.note.textContent = error.message; }
    this.drawSoon = undefined;
  }

  /** Take the last drawing; that of many steps must be asked for, if the server is still there. */
  end(svg) {
    if (svg) this.put(svgOf(svg)); else this.draw();
  }

  put(svg) {
    this.element.hidden = !this.view.steps.length;
    this.note.textContent = svg.dataset.note;
    fill(this.box, svg);
    this.paint();
  }

  paint() {
    const { steps } = this.view;
    for (const box of this.box.querySelectorAll("a.box")) {
      const counts = {};
      for (const n of box.dataset.steps ? ranges(box.dataset.steps) : [Number(box.dataset.n)]) {
        const [from, to] = steps[n]?.children ?? [n, n];
        for (let at = from; at <= to; at++) if (steps[at]) counts[steps[at].state] = (counts[steps[at].state] ?? 0) + 1;
      }
      const [name, below, sign] = [".name", ".sub", ".sym"].map((part) => box.querySelector(part));
      const state = WORST.find((s) => counts[s]) ?? "", [symbol, word, kind] = look(state), one = steps[box.dataset.n];
      box.dataset.tool ??= box.dataset.many ? "" : below.textContent.split(" · ")[0];
      const isOne = sorted(counts).reduce((sum, [, count]) => sum + count, 0) === 1;
      const took = isOne && one.ended !== null && one.started !== null ? span(one.ended - one.started) : "";
      const told = isOne ? took : sorted(counts).slice(0, 4).map(([s, n]) => `${look(s)[0]}${n}`).join(" ");
      sign.textContent = symbol;
      below.textContent = [box.dataset.tool, told].filter(Boolean).join(" · ");
      box.setAttribute("class", `box ${kind} ${state}${box.classList.contains("hot") ? " hot" : ""}${box.dataset.gone ? " gone" : ""}`);
      const title = `${isOne ? one.id : name.textContent}: ${isOne ? `${one.tool}, ${word}` : sorted(counts).map(([s, n]) => `${n} ${look(s)[1]}`).join(", ")}`;
      box.setAttribute("aria-label", title);
      box.querySelector("title").textContent = title;
    }
    const there = new Set(steps.map((step) => step.state));
    fill(this.legend, ...Object.keys(STATES).filter((s) => there.has(s)).map((s) => make("li", make("b", { class: `sym ${look(s)[2]}` }, look(s)[0]), ` ${look(s)[1]}`)));
  }
}

/** The numbers of "3-5,9". */
function ranges(text) {
  return text.split(",").flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    return Array.from({ length: (last ?? first) - first + 1 }, (_, more) => first + more);
  });
}
