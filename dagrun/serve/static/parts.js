// Parts of the page: elements, requests, words, and the panel that asks a person.
// Whatever comes from a run is put in as text, never as markup: `make` is the only way in which elements are made.

/** Symbol of each state and standing; the word always stands beside it. */
export const LOOKS = {
  waiting: "·", ready: "○", running: "▶", held: "‖", blocked: "⊘", succeeded: "✓", failed: "✗", timed_out: "⧖",
  unknown: "?", skipped: "↷", cancelled: "∅", superseded: "⇢", abandoned: "☠", interrupted: "!", ended: "✓",
  over_budget: "✗", escalated: "?", damaged: "!", empty: "–",
};
export const symbol = (/** @type {string} */ state) => LOOKS[state] ?? "•";
export const words = (/** @type {string} */ state) => state.replaceAll("_", " ");

const ROOT = new URL("../", import.meta.url);
const KEY = "dagrun-token";

/**
 * Make an element. `facts` are attributes; a function is a listener.
 * @param {string} name @param {Record<string, any>} facts @param {...any} inside
 */
export function make(name, facts = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (key === "class") element.className = value;
    else if (typeof value === "boolean") element.toggleAttribute(key, value);
    else if (value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...inside.filter((part) => part !== null && part !== undefined).map((p) => (p instanceof Node ? p : String(p))));
  return element;
}

/** Replace what is in an element. */
export const fill = (/** @type {Element} */ element, /** @type {any[]} */ ...inside) =>
  element.replaceChildren(...inside.filter((part) => part !== null && part !== undefined));

export const badge = (/** @type {string} */ state) =>
  make("span", { class: `badge ${state}` }, `${symbol(state)} ${words(state)}`);

/** Seconds as a short text. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours} h ${String(minutes).padStart(2, "0")} min` : `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
}

// Requests -------------------------------------------------------------------------------------------------

/** Take the token out of the address, where it would be seen, and keep it for this tab. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, found[1]);
  history.replaceState(null, "", location.pathname + location.search);
}
export const keepToken = (/** @type {string} */ token) => sessionStorage.setItem(KEY, token);

export const page = (/** @type {string} */ path) => new URL(path, ROOT).href;

/** A request refused by the server, with its sentence. */
export class Refused extends Error {
  constructor(status, facts) {
    super(facts.error ?? `the server said ${status}`);
    this.status = status;
    this.facts = facts;
  }
}

/** Ask the server. @param {string} path @param {RequestInit} options */
export async function ask(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(new URL(`api/${path}`, ROOT), { ...options, headers, cache: "no-store" });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}
export const get = async (/** @type {string} */ path) => (await ask(path)).json();
export const post = async (/** @type {string} */ path, /** @type {object} */ body) =>
  (await ask(path, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Dagrun": "1" },
  })).json();

// Values ---------------------------------------------------------------------------------------------------

/** A value of a step as it is shown: its text, or why there is none. */
export function value(/** @type {any} */ shown) {
  const facts = shown?.$value;
  if (!facts) return make("p", { class: "soft" }, "none");
  if (facts.json === undefined) {
    const why = facts.hidden ?? facts.unavailable ?? (facts.artifact !== undefined ? `file ${facts.artifact}, ${facts.media}, ${facts.bytes} bytes` : "not loaded");
    return make("p", { class: "soft" }, why);
  }
  const note = facts.cut ? make("p", { class: "soft" }, `the beginning of ${facts.bytes} bytes, sha256 ${facts.sha256 ?? ""}`) : null;
  return make("div", {}, facts.planned ? make("p", { class: "soft" }, "as planned") : null, make("pre", { tabindex: 0 }, facts.json), note);
}

/** The lines of a change, with what goes and what comes. */
export const diff = (/** @type {string[]} */ lines) =>
  make("pre", { class: "diff", tabindex: 0 }, ...lines.map((line) =>
    make("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "" }, `${line}\n`)));

// The panel ------------------------------------------------------------------------------------------------

/** The field for a value, by its schema. Its text is read by the server, as a number would lose digits here. */
function field(schema, id) {
  const choices = schema?.enum ?? (schema?.type === "boolean" ? [true, false] : null);
  if (Array.isArray(choices)) {
    const select = make("select", { id }, make("option", { value: "" }, "choose"));
    select.append(...choices.map((choice) => make("option", { value: JSON.stringify(choice) }, typeof choice === "string" ? choice : JSON.stringify(choice))));
    return select;
  }
  const isNumber = ["number", "integer"].includes(schema?.type);
  const isText = schema?.type === "string";
  if (isNumber || isText) {
    const limits = isNumber ? { inputmode: "decimal", min: schema.minimum, max: schema.maximum } : {};
    return make("input", { id, type: "text", autocomplete: "off", ...limits });
  }
  return make("textarea", { id, rows: 3, spellcheck: "false" });
}

const hint = (schema) => schema ? `as JSON Schema: ${JSON.stringify(schema)}` : "as JSON";

/**
 * The panel of one open question. It sends nothing by itself, and Enter sends nothing.
 * @param {string} run @param {any} question @param {boolean} readOnly @param {(text: string) => void} said
 */
export function panel(run, question, readOnly, said) {
  const id = `q-${question.id.slice(0, 16)}`;
  const isEffect = question.kind === "effect";
  const boxes = question.checklist.map((point, n) => ({ point, box: make("input", { type: "checkbox", id: `${id}-${n}`, change: judge }) }));
  const note = make("input", { type: "text", id: `${id}-note`, maxlength: 2000, autocomplete: "off" });
  const typed = question.wants_value ? field(question.schema, `${id}-value`) : null;
  const message = make("p", { class: "message", role: "status" });
  const args = question.arguments;
  let isWhole = !args || args.text.length >= args.characters;
  const text = args ? make("pre", { tabindex: 0, class: "args" }, args.text) : null;
  const load = isWhole ? null : make("button", { type: "button", click: loadAll }, `Load all ${args.characters} characters`);
  const [yes, no, people] = [
    [isEffect ? "Yes, it took effect" : question.kind === "input" ? "Send this value" : question.kind === "approval" ? "Yes, make this call" : "Yes", "approve"],
    [isEffect ? "No, it did not" : "No", "deny"], ["Hand over to people", "escalate"],
  ].map(([label, choice]) => make("button", { type: "button", class: choice, click: () => send(choice) }, label));

  function judge() {
    yes.disabled = !isWhole || boxes.some(({ box }) => !box.checked);
  }
  async function loadAll() {
    const whole = await get(`runs/${run}/questions/${question.id}`).catch((error) => void (message.textContent = error.message));
    if (!whole) return;
    text.textContent = whole.arguments.text;
    isWhole = whole.arguments.text.length >= whole.arguments.characters;
    load.remove();
    judge();
  }
  async function send(choice) {
    const body = { question: question.id, choice, note: note.value, ticked: boxes.filter(({ box }) => box.checked).map(({ point }) => point) };
    if (typed && choice === "approve" && typed.value !== "") body.text = typed.value;
    else if (typed && choice === "approve" && !isEffect) return void (message.textContent = "a value is asked for");
    for (const button of [yes, no, people]) button.disabled = true;
    try {
      const done = await post(`runs/${run}/answers`, body);
      said(done.taken || done.is_held ? "answered" : "answered; no process is at the run, so it goes on with dagrun resume");
      message.textContent = "answered";
    } catch (error) {
      const now = error.facts?.now;
      message.textContent = now?.answer ? `${error.message}: answered by ${now.answer.by || "somebody"} (${now.answer.choice})` : error.message;
      if (error.status === 409) return;
      for (const button of [no, people]) button.disabled = false;
      judge();
    }
  }
  judge();
  const head = [
    make("h3", {}, question.title),
    make("p", {}, question.text),
    make("dl", { class: "facts" },
      ...[["step", question.step], ["tool", question.tool], ["effect", question.effect && `${question.effect}: ${question.effect_words}`], ["asked because", question.why]]
        .filter(([, fact]) => fact).flatMap(([name, fact]) => [make("dt", {}, name), make("dd", {}, fact)])),
  ];
  return make("section", { class: "question", id, "aria-label": `question about ${question.step || "the run"}`, "data-question": question.id },
    ...head,
    text ? make("div", {}, make("p", { class: "soft" }, `the exact arguments, ${args.characters} characters, sha256 ${args.sha256}`), text, load) : null,
    question.diff.length ? diff(question.diff) : null,
    question.deadline !== null ? make("p", { class: "deadline", "data-deadline": question.deadline, "data-default": question.default?.choice ?? "" }) : null,
    ...(readOnly ? [make("p", { class: "soft" }, "only looking is allowed here")] : [
      ...boxes.map(({ point, box }) => make("label", { class: "tick" }, box, ` ${point}`)),
      typed ? make("label", { class: "typed" }, `${question.name || "value"} `, typed, make("small", {}, hint(question.schema))) : null,
      make("label", { class: "note" }, "note ", note),
      make("p", { class: "buttons" }, yes, no, people),
    ]),
    message);
}
