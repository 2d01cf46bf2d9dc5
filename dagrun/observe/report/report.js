// The script of the report page: the table that is the timeline, the drawer of a step, filters, and keys.
// Texts come from models: they become elements by `textContent` alone.
"use strict";
(async () => {
  const ROW = 26, HEAD = 64, MORE = 8;
  const $ = (id) => document.getElementById(id);
  /** Make an element: `el("p.note", {title: "x"}, "text", child)`. */
  const el = (what, facts = {}, ...children) => {
    const [name, ...classes] = what.split(".");
    const made = document.createElement(name);
    if (classes.length) made.className = classes.join(" ");
    for (const [key, value] of Object.entries(facts)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const took = (s) => s < 0.0995 ? (s >= 0.0005 || !s ? `${Math.round(s * 1000)} ms` : "<1 ms")
    : s < 59.95 ? `${s.toFixed(s >= 9.995 ? 1 : 2)} s`
    : s < 3600 ? `${Math.floor(s / 60)} min ${two(s % 60)} s` : `${Math.floor(s / 3600)} h ${two(s % 3600 / 60)} min`;

  if (typeof DecompressionStream === "undefined") {
    $("time")?.append(el("p.note", {}, "This browser is too old for the table; the drawing shows the longest steps."));
    return;
  }
  const bytes = Uint8Array.from(atob($("view").textContent), (sign) => sign.charCodeAt(0));
  const data = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  $("view").remove();
  const steps = data.steps, length = Math.max(data.at, 1e-6);
  const byId = new Map(steps.map((step) => [step.id, step]));
  const usedBy = new Map();
  for (const step of steps) {
    step.state ||= ""; step.attempts ||= []; step.waits ||= []; step.started ??= step.attempts.length ? 0 : undefined;
    for (const need of step.needs || []) usedBy.set(need, [...(usedBy.get(need) || []), step.n]);
    step.text = [step.id, step.tool, step.state, step.why].join(" ").toLowerCase();
    step.wait = step.waits.reduce((sum, wait) => sum + ((wait[2] ?? data.at) - wait[1]), 0);
    step.work = step.attempts.reduce((sum, call) => sum + ((call.ended ?? data.at) - (call.started || 0)), 0);
    if (step.children && step.started !== undefined) step.work = (step.ended ?? data.at) - step.started;
    step.first = Math.min(step.started ?? Infinity, ...step.waits.map((wait) => wait[1]));
  }
  const look = (state) => data.looks[state] || ["•", state, "dim"];

  // The table ---------------------------------------------------------------------------------------------------------
  const seen = {text: "", states: new Set(), tool: "", order: "start", open: new Set(), only: null, from: 0, to: length};
  let shown = [], at = -1, back = null, folds = data.folds;
  const orders = {
    plan: null, start: (a, b) => a.first - b.first || a.n - b.n, duration: (a, b) => b.work - a.work,
    wait: (a, b) => b.wait - a.wait, attempts: (a, b) => b.attempts.length - a.attempts.length,
  };
  const inOrder = (list) => orders[seen.order] ? [...list].sort(orders[seen.order]) : list;
  const elements = (step) => step.children ? steps.slice(step.children[0], step.children[1] + 1) : [];
  const isFiltered = () => seen.text || seen.states.size || seen.tool || seen.only;
  const select = () => {
    const flat = isFiltered(), words = seen.text.split(/\s+/).filter(Boolean);
    const fits = (step) => words.every((word) => step.text.includes(word))
      && (!seen.states.size || seen.states.has(step.state)) && (!seen.tool || step.tool === seen.tool) && (!seen.only || seen.only.has(step.n));
    if (flat) return inOrder(steps.filter(fits));
    const tops = inOrder(steps.filter((step) => step.parent === undefined));
    return tops.flatMap((step) => seen.open.has(step.n) ? [step, ...inOrder(elements(step))] : [step]);
  };
  // Idle stretches are drawn short: as 4 % of the time that is not idle.
  const warp = (time) => {
    const busy = length - folds.reduce((sum, [from, to]) => sum + to - from, 0);
    return folds.reduce((at, [from, to]) => time <= from ? at : at - (Math.min(time, to) - from) * (1 - 0.04 * busy / (to - from)), time);
  };
  const share = (time) => (warp(time) - warp(seen.from)) / (warp(seen.to) - warp(seen.from)) * 100;
  const bar = (kind, from, to, title) => {
    const left = share(Math.max(from, seen.from)), right = share(Math.min(to, seen.to));
    if (right < 0 || left > 100 || to < seen.from || from > seen.to) return null;
    const made = el("i", {title});
    made.className = kind;
    made.style.left = `min(${left}%, 100% - 2px)`;
    made.style.width = `${Math.max(0, right - left)}%`;
    return made;
  };
  const bars = (step) => {
    const made = step.waits.map(([reason, from, to, limit]) => bar(`w ${reason}`, from, to ?? data.at,
      `waited ${took((to ?? data.at) - from)} ${data.waits[reason]}${limit ? ` (${limit} was full)` : ""}`));
    const call = (one, who, frame) => {
      const from = one.started || 0, to = one.ended ?? data.at, [, word, kind] = look(one.state || "running");
      const torn = one.ended === null ? " torn" : "";
      made.push(bar(`bar ${kind}${frame}${torn}`, from, to, `${who}: ${took(to - from)}, ${word}${torn && data.cut ? ": its end is not on record" : ""}`));
      if (one.hedge) made.push(bar("hedge", one.hedge.started, one.hedge.ended ?? data.at, "second call"));
    };
    if (step.children && step.started !== undefined) {
      call({started: step.started, ended: step.ended ?? null, state: step.state}, step.id, " frame");
      if (!seen.open.has(step.n)) elements(step).slice(0, 60).forEach((one) => one.attempts.forEach((c) => call(c, one.id, "")));
    }
    step.attempts.forEach((one) => call(one, `${step.id}, call ${one.number}`, ""));
    return made.filter(Boolean);
  };
  const rowOf = (step, place) => {
    const [symbol, word, kind] = look(step.state);
    const fold = step.children && !isFiltered() ? el("button.fold", {
      type: "button", "aria-expanded": seen.open.has(step.n), "aria-label": `elements of ${step.id}`, tabindex: -1,
      onclick: (event) => { event.stopPropagation(); unfold(step); },
    }, seen.open.has(step.n) ? "▾" : "▸") : null;
    const count = step.children ? ` × ${step.children[1] - step.children[0] + 1}` : "";
    const row = el(`div.item${step.on_path ? ".hotrow" : ""}`, {
      role: "row", "data-n": step.n, "aria-rowindex": place + 2, tabindex: place === Math.max(at, 0) ? 0 : -1,
    },
    el(`span${step.parent !== undefined ? ".sub" : ""}`, {role: "cell", title: `${step.id}${step.why ? `: ${step.why}` : ""}`},
      fold, el(`span.sym.${kind}`, {title: word}, symbol), ` ${step.id}${count}`),
    el("span.wide-only", {role: "cell", title: step.tool}, step.tool || ""),
    el("span.wide-only.num", {role: "cell", title: word}, step.started === undefined ? word : took(step.work)),
    el("span.bars", {role: "cell", "aria-label": word}, ...bars(step)));
    row.style.top = `${HEAD + place * ROW}px`;
    return row;
  };
  const unfold = (step) => { seen.open.has(step.n) ? seen.open.delete(step.n) : seen.open.add(step.n); list(); };

  const live = $("live");
  let box = null, size = null, said = null, over = null;
  const draw = () => {
    if (!box) return;
    const focused = box.contains(document.activeElement) && document.activeElement.dataset.n;
    box.querySelectorAll(".item").forEach((row) => row.remove());
    const first = Math.max(0, Math.floor((box.scrollTop - HEAD) / ROW) - MORE);
    const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + MORE);
    box.append(...shown.slice(first, last).map((step, place) => rowOf(step, first + place)));
    if (focused) box.querySelector(`.item[data-n="${focused}"]`)?.focus({preventScroll: true});
  };
  const list = () => {
    shown = select();
    at = Math.min(at, shown.length - 1);
    box.setAttribute("aria-rowcount", shown.length + 1);
    box.style.height = `${Math.min(560, Math.max(140, HEAD + shown.length * ROW + 4))}px`;
    size.style.height = `${HEAD + shown.length * ROW}px`;
    said.textContent = `${shown.length.toLocaleString("en")} of ${steps.length.toLocaleString("en")} steps`;
    draw();
  };
  const go = (place) => {
    at = Math.max(0, Math.min(shown.length - 1, place));
    const top = at * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + ROW + HEAD > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW + HEAD - box.clientHeight;
    draw();
    box.querySelector(`.item[data-n="${shown[at]?.n}"]`)?.focus({preventScroll: true});
  };

  // The axis ----------------------------------------------------------------------------------------------------------
  const axis = () => {
    const room = Math.max(2, Math.min(7, axisBox.clientWidth / 75));
    const span = warp(seen.to) - warp(seen.from), power = 10 ** Math.floor(Math.log10(span / room));
    const round = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((one) => one * room >= span);
    const step = span > 90 && round ? round : power * [1, 2, 5, 10].find((one) => power * one * room >= span);
    const text = (time) => !time ? "0" : span > 90 ? took(time).replace(/ 00 \S+$/, "") : seen.to < 0.2 ? `${+(time * 1000).toFixed(3)} ms` : `${+time.toFixed(6)} s`;
    const made = [], lines = [], most = Math.max(1, ...data.curve.map(([, value]) => value));
    const put = (one, time, list = made) => { one.style.left = `${share(time)}%`; list.push(one); };
    data.curve.forEach(([time, value], place) => {
      const one = value && bar("col", time, data.curve[place + 1]?.[0] ?? data.at, `${value} at once`);
      if (one) { one.style.height = `${value / most * 34}px`; made.push(one); }
    });
    const begins = [0, ...folds.map(([, to]) => to)], ends = [...folds.map(([from]) => from), length];
    begins.forEach((begin, n) => {
      for (let count = Math.max(n && 1, Math.ceil((seen.from - begin) / step)); begin + count * step <= Math.min(ends[n], seen.to) + 1e-9; count++) {
        const left = share(begin + count * step);
        put(el(left < 3 ? "span.first" : "span", {}, left > 97 ? "" : (n ? "+" : "") + text(count * step)), begin + count * step);
      }
    });
    for (const [from, to] of folds) {
      const band = bar("idle", from, to, "");
      if (!band) continue;
      lines.push(band);
      put(el("button.idle", {type: "button", title: "nothing ran: click to see it in full", onclick: () => { folds = []; zoom(seen.from, seen.to); }},
        `⋯ ${took(to - from)} ⋯`), (from + to) / 2);
    }
    for (const [start, end, kind, number, result] of data.planner) {
      const one = bar("pl", start || 0, end ?? data.at, `planner: ${kind === "draft" ? "writes the plan" : `request ${number}`}, ${result || "not ended"}`);
      if (one) made.push(one);
    }
    for (const [time, number, did] of data.revisions.slice(0, 200)) {
      if (time < seen.from || time > seen.to) continue;
      put(el("a.spl", {href: `#revision-${number}`, title: `revision ${number}: ${did}`, "aria-label": `revision ${number}`}, "▼"), time);
      put(el("i.sp"), time, lines);
    }
    if (folds !== data.folds || seen.to - seen.from < length - 1e-9) made.push(el("button", {type: "button", onclick: () => { folds = data.folds; zoom(0, length); }}, "whole run"));
    over.replaceChildren(...lines);
    return made;
  };
  let axisBox = null;
  const zoom = (from, to) => {
    if (to - from < length / 1e5) return;
    [seen.from, seen.to] = [from, to];
    axisBox.replaceChildren(...axis());
    draw();
  };
  const drag = (event) => {
    if (event.target.closest("a,button") || event.button) return;
    const place = axisBox.getBoundingClientRect(), start = event.clientX;
    const time = (x) => {
      const wanted = (x - place.left) / place.width * 100;
      let [low, high] = [seen.from, seen.to];
      for (let n = 0; n < 50; n++) share((low + high) / 2) < wanted ? low = (low + high) / 2 : high = (low + high) / 2;
      return low;
    };
    const band = el("i.sel");
    axisBox.append(band);
    const move = (next) => {
      const [left, right] = [start, next.clientX].sort((a, b) => a - b);
      band.style.left = `${left - place.left}px`;
      band.style.width = `${right - left}px`;
    };
    const done = (next) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", done);
      band.remove();
      const [left, right] = [start, next.clientX].sort((a, b) => a - b);
      if (right - left > 4) zoom(time(left), time(right));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", done);
  };

  // The drawer --------------------------------------------------------------------------------------------------------
  const drawer = $("step");
  const value = (title, shownValue) => {
    if (!shownValue) return null;
    const inside = shownValue["$value"];
    const why = inside.unavailable || inside.hidden || (inside.left_out ? "left out of this report" : "");
    let text = inside.json ?? (inside.artifact !== undefined ? `file ${inside.artifact}, ${inside.media}, ${inside.bytes} bytes` : `(${why})`);
    if (inside.json !== undefined && !inside.cut) {
      const read = JSON.parse(text);
      text = typeof read === "string" ? read : JSON.stringify(read, null, 2);
    }
    const more = inside.planned ? " (as planned)" : inside.cut ? ` (the beginning of ${inside.bytes.toLocaleString("en")} bytes)` : "";
    return el("div", {}, el("h3", {}, title + more), el("pre", {tabindex: 0}, text));
  };
  const link = (n, before = "") => el("a", {href: `#step-${steps[n].id}`}, `${before}${look(steps[n].state)[0]} ${steps[n].id}`);
  const links = (title, numbers) => {
    const some = numbers.slice(0, 12).map((n) => link(n));
    return el("div", {}, el("b", {}, title), ...some, numbers.length > 12 ? `and ${numbers.length - 12} more` : "");
  };
  const shared = (call) => {
    const whose = `step ${call.step}${call.run ? ` in run ${call.run}` : ""}`;
    if (call.how === "batched") return `one of ${call.calls} calls made as one, which ${whose} began`;
    return call.how === "cached" ? `the kept result of ${whose}` : `the call of ${whose}, which was under way`;
  };
  const attempt = (one) => {
    const [symbol, word, kind] = look(one.state || "running");
    const from = one.started || 0, lines = [];
    if (one.failure) lines.push(`${one.failure.kind.replaceAll("_", " ")}: ${one.failure.message}`, one.failure.where && `at ${one.failure.where}`);
    if (one.row) lines.push(`${(one.recovery || "").replaceAll("_", " ")}: ${one.row}`);
    if (one.delay) lines.push(`next attempt after ${took(one.delay)}`);
    if (one.surprise) lines.push(`surprising: ${one.surprise}`);
    if (one.tokens) lines.push(`${one.tokens} tokens`);
    if (one.shared) lines.push(shared(one.shared));
    if (one.hedge) lines.push(`second call at ${took(one.hedge.started)}: ${one.hedge.has_won ? "it was faster" : one.hedge.fault || "not needed"}`);
    return el("li", {}, el(`span.sym.${kind}`, {}, symbol), ` ${one.tool}, ${word}, at ${took(from)} for ${took((one.ended ?? data.at) - from)}`,
      ...lines.filter(Boolean).map((line) => el("p.note", {}, line)));
  };
  const open = (step) => {
    if (!step) return;
    if (drawer.hidden) back = document.activeElement;
    const [symbol, word, kind] = look(step.state);
    const waits = step.waits.map(([reason, from, to, limit]) =>
      el("li", {}, `${took((to ?? data.at) - from)} ${data.waits[reason]}${limit ? ` (${limit} was full)` : ""}, from ${took(from)}`));
    const facts = [step.tool, step.effect, step.gone ? `left the plan in revision ${step.gone}` : "", step.revision ? `came with revision ${step.revision}` : "",
      step.on_path ? "on the critical path" : "", step.is_default ? "its default is used" : "", step.after_wave ? "after the wave before it" : ""];
    const copy = el("button", {type: "button", onclick: () => navigator.clipboard?.writeText(JSON.stringify({...step, text: undefined}, null, 2))
      .then(() => { copy.textContent = "copied"; })}, "copy as JSON");
    drawer.replaceChildren(...[
      el("button.close", {type: "button", "aria-label": "Close", onclick: close}, "✕"),
      el("h2", {id: "step-title", tabindex: -1}, el(`span.sym.${kind}`, {}, symbol), ` ${step.id}`),
      el("p", {}, `${word}${step.why ? `: ${step.why}` : ""}`),
      el("p.note", {}, facts.filter(Boolean).join(" · ")),
      step.description ? el("p", {}, step.description) : null,
      el("div.mini", {}, links("needs", step.parent !== undefined ? [step.parent] : step.needs || []),
        el("div", {}, el("b", {}, "this step"), el(`span.me.${kind}`, {}, step.id), step.substitute !== undefined ? link(step.substitute, "replaced by ") : null),
        links(step.children ? "elements" : "used by", step.children ? elements(step).map((one) => one.n) : usedBy.get(step.n) || [])),
      step.attempts.length ? el("h3", {}, "Attempts") : null, el("ol", {}, ...step.attempts.map(attempt)),
      waits.length ? el("h3", {}, "Waits") : null, el("ul", {}, ...waits),
      step.verdicts ? el("h3", {}, "Critics") : null,
      ...(step.verdicts || []).map((one) => el("p", {}, `${one.critic}: ${one.result}${one.reason ? `: ${one.reason}` : ""}`)),
      value("Arguments", step.args), value("Output", step.output), el("p", {}, copy),
    ].filter(Boolean));
    drawer.hidden = false;
    $("step-title").focus();
  };
  const close = () => {
    if (drawer.hidden) return;
    drawer.hidden = true;
    history.replaceState(null, "", location.pathname + location.search);
    const again = back?.dataset?.n !== undefined && !back.isConnected ? box?.querySelector(`.item[data-n="${back.dataset.n}"]`) : back;
    (again || box)?.focus?.({preventScroll: true});
  };
  const named = () => {
    const id = decodeURIComponent(location.hash).match(/^#step-(.+)$/s)?.[1];
    if (id !== undefined && byId.has(id)) open(byId.get(id));
    document.querySelector(`details[id="${CSS.escape(location.hash.slice(1))}"]`)?.setAttribute("open", "");
  };

  // Filters, keys, the graph ------------------------------------------------------------------------------------------
  if (live) {
    const counts = new Map();
    steps.forEach((step) => counts.set(step.state, (counts.get(step.state) || 0) + 1));
    const chips = [...counts].sort((a, b) => b[1] - a[1]).map(([state, count]) => {
      const chip = el("button.chip", {type: "button", "aria-pressed": "false", "data-state": state, onclick: () => {
        seen.states.has(state) ? seen.states.delete(state) : seen.states.add(state);
        chip.setAttribute("aria-pressed", seen.states.has(state));
        list();
      }}, el(`span.sym.${look(state)[2]}`, {}, look(state)[0]), `${look(state)[1]} ${count.toLocaleString("en")}`);
      return chip;
    });
    const choice = (id, label, change, options, value) => {
      const made = el("select", {id, "aria-label": label, onchange: () => { change(made.value); list(); }},
        ...Object.entries(options).map(([name, text]) => el("option", {value: name, selected: name === value ? "" : null}, text)));
      return made;
    };
    const filter = el("input", {id: "filter", type: "search", placeholder: "Filter: id, tool, state, reason   ( / )", "aria-label": "Filter the steps",
      oninput: () => { seen.text = filter.value.trim().toLowerCase(); seen.only = null; box.scrollTop = 0; list(); }});
    const sort = choice("sort", "Order of the steps", (order) => { seen.order = order; },
      {plan: "order of the plan", start: "first start", duration: "longest", wait: "longest wait", attempts: "most attempts"}, seen.order);
    const tools = [...new Set(steps.map((step) => step.tool).filter(Boolean))].sort();
    const tool = tools.length > 1 ? choice("tool", "Tool", (name) => { seen.tool = name; seen.only = null; box.scrollTop = 0; },
      {"": "every tool", ...Object.fromEntries(tools.map((name) => [name, name]))}, "") : null;
    said = el("span.note", {role: "status"});
    over = el("span.bars");
    size = el("div.over", {role: "presentation"}, el("span"), el("span.wide-only"), el("span.wide-only"), over);
    axisBox = el("span.axisbox", {role: "columnheader", title: "Drag over a range to see it whole", onpointerdown: drag});
    box = el("div", {id: "rows", role: "table", "aria-label": "Steps and when they ran", tabindex: 0, onscroll: draw});
    const head = ["Step", "Tool", "Took"].map((text, place) => el(place ? "span.wide-only" : "span", {role: "columnheader"}, text));
    box.append(el("div.head", {role: "row", "aria-rowindex": 1}, ...head, axisBox), size);
    const keys = el("p.note", {id: "keys", hidden: ""}, "Keys: / filters, j and k go from row to row, → unfolds the elements of a row, Enter opens a step,"
      + " Esc closes it, ? shows and hides this. Drag over the axis to see a range; click on ⋯ to see an idle stretch in full.");
    const help = el("button", {type: "button", "aria-expanded": false, "aria-controls": "keys", onclick: () => {
      keys.hidden = !keys.hidden;
      help.setAttribute("aria-expanded", !keys.hidden);
    }}, "? keys");
    live.append(el("div", {id: "tools"}, ...[filter, tool, sort, ...chips, said, help].filter(Boolean)), keys, box);
    axisBox.append(...axis());
    box.addEventListener("click", (event) => {
      const row = event.target.closest(".item");
      if (!row) return;
      at = shown.findIndex((step) => step.n === +row.dataset.n);
      row.focus({preventScroll: true});
      location.hash = `step-${steps[+row.dataset.n].id}`;
    });
    list();
    addEventListener("resize", () => zoom(seen.from, seen.to));
    addEventListener("keydown", (event) => {
      if (event.key === "Escape") return close();
      if (event.target.closest("input,select,textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      const inRows = box.contains(event.target);
      if (event.key === "/") { event.preventDefault(); filter.focus(); }
      else if (event.key === "?") help.click();
      else if (event.key === "j" || (inRows && event.key === "ArrowDown")) { event.preventDefault(); go(at + 1); }
      else if (event.key === "k" || (inRows && event.key === "ArrowUp")) { event.preventDefault(); go(at - 1); }
      else if (inRows && event.key === "Enter" && shown[at]) { event.preventDefault(); location.hash = `step-${shown[at].id}`; }
      else if (inRows && event.key === "ArrowRight" && shown[at]?.children) unfold(shown[at]);
    });
  }
  document.querySelectorAll("svg.dag a.box[data-steps]").forEach((one) => one.addEventListener("click", (event) => {
    event.preventDefault();
    seen.only = new Set(one.dataset.steps.split(",").flatMap((part) => {
      const [first, last] = part.split("-").map(Number);
      return Array.from({length: (last ?? first) - first + 1}, (_, more) => first + more);
    }));
    box.scrollTop = 0;
    list();
    $("time").scrollIntoView();
    box.focus({preventScroll: true});
  }));
  const slider = $("revisions");
  const dated = document.querySelectorAll("svg.dag [data-rev],svg.dag [data-gone]");
  if (slider && data.revisions.length && dated.length) {
    const range = el("input", {type: "range", min: 0, max: data.last, value: data.last, "aria-label": "Revision of the plan", oninput: () => {
      dated.forEach((one) => one.classList.toggle("off", +(one.dataset.rev || 0) > +range.value));
      label.textContent = ` revision ${range.value} of ${data.last}`;
    }});
    const label = el("span", {}, ` revision ${data.last} of ${data.last}`);
    slider.append("The plan as of ", range, label);
  }
  if (document.querySelectorAll(".static a").length > 120) document.querySelector(".static")?.remove();
  document.documentElement.classList.add("js");
  draw();
  addEventListener("hashchange", named);
  named();
  document.documentElement.dataset.ready = Math.round(performance.now());
})();
