// Parts of the page: elements, requests, words, values.
// Whatever comes from a run is put in as text, never as markup: `make` is the only way in which elements are made.

import { RUNS, STATES } from "./looks.js";

const NONE = ["•", "", "dim"];
/** Symbol, word and kind of colour of a state of a step. */
export const look = (state) => STATES[state] ?? NONE;
/** The same of a run: its status, or its state. */
export const runLook = (run) => RUNS[(run.state === "ended" && run.status) || (run.state !== "running" && run.queue && run.queue.status !== "running" && run.queue.status) || run.state] ?? NONE;
/** The counts of states, in the order in which states are shown. */
export const sorted = (counts) =>
  Object.keys(STATES).filter((state) => counts[state]).map((state) => ([state, counts[state]]));
export const BAD = ["failed", "timed_out", "unknown", "abandoned"];
export const OPEN = ["held", "running", "ready", "blocked", "waiting"];

const ROOT = new URL("../", import.meta.url);
const KEY = "dagrun-token";

/** Make an element: `make("p.note", { title: "x", click: act }, "text", child)`; facts are attributes and listeners. */
export function make(what, ...inside) {
  const [name, ...classes] = what.split("."), element = document.createElement(name);
  const facts = inside[0]?.constructor === Object ? inside.shift() : {};
  if (classes.length) element.className = classes.join(" ");
  if (name === "button") element.type = "button";
  for (const [key, value] of Object.entries(facts)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (typeof value === "boolean") element.toggleAttribute(key, value);
    else if (value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  fill(element, ...inside);
  return element;
}

/** Replace what is in an element; nothing stands for `null`. */
export const fill = (element, ...inside) => element.replaceChildren(...inside.filter((part) => part !== null && part !== undefined));

/** A look as a badge. */
export const badge = ([sign, word, kind]) => make("span", { class: `badge ${kind}` }, `${sign} ${word}`);

/** How many steps are in which state, as a bar. */
export function progress(counts, total) {
  if (!total) return "";
  const bar = make("div.progress", { role: "img", "aria-label": sorted(counts).map(([s, n]) => `${n} ${look(s)[1]}`).join(", ") });
  for (const [state, count] of sorted(counts)) {
    const part = make("span", { class: `${look(state)[2]} ${state}`, title: `${count} ${look(state)[1]}` });
    part.style.flexGrow = String(count);
    bar.append(part);
  }
  return bar;
}

/** A drawing of the server as an element of this page. Its texts are text already, and its scripts could not run. */
export const svgOf = (text) => document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
export const drawing = async (path) => svgOf(await (await ask(path)).text());

/** Let a person keep what the server returns for a path. */
export async function download(path, name) {
  const url = URL.createObjectURL(await (await ask(path)).blob());
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A button that downloads, and says why if it cannot. */
export const save = (label, path, name) => {
  const button = make("button", { click: () => download(path, name).catch((error) => { button.textContent = error.message; }) }, label);
  return button;
};

/** Seconds as a short text. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
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
export const keepToken = (token) => sessionStorage.setItem(KEY, token);

export const page = (path) => new URL(path, ROOT).href;

/** A request refused by the server, with its sentence. */
export class Refused extends Error {
  constructor(status, facts) {
    super(facts.error ?? `the server said ${status}`);
    this.status = status;
    this.facts = facts;
  }
}

/** Ask the server. */
export async function ask(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(new URL(`api/${path}`, ROOT), { ...options, headers, cache: "no-store" });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}
export const get = async (path) => (await ask(path)).json();
export const post = async (path, body) =>
  (await ask(path, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Dagrun": "1" },
  })).json();

// Values ---------------------------------------------------------------------------------------------------

/** A value of a step as it is shown: its text, or why there is none. */
export function value(shown) {
  const facts = shown?.$value;
  if (!facts) return make("p.soft", "none");
  if (facts.json === undefined) {
    const why = facts.hidden ?? facts.unavailable ?? (facts.artifact !== undefined ? `file ${facts.artifact}, ${facts.media}, ${facts.bytes} bytes` : "not loaded");
    return make("p.soft", why);
  }
  const note = facts.cut ? make("p.soft", `the beginning of ${facts.bytes} bytes, sha256 ${facts.sha256 ?? ""}`) : null;
  return make("div", facts.planned ? make("p.soft", "as planned") : null, make("pre", { tabindex: 0 }, facts.json), note);
}

/** The lines of a change, with what goes and what comes. */
export const diff = (lines) =>
  make("pre.diff", { tabindex: 0 }, ...lines.map((line) =>
    make("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "" }, `${line}\n`)));
