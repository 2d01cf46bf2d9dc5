// The panel that asks a person.
import { diff, drawing, get, make, post } from "./parts.js";

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
 */
export function panel(run, question, readOnly, said) {
  const id = `q-${question.id.slice(0, 16)}`;
  const isEffect = question.kind === "effect";
  const boxes = question.checklist.map((point, n) => ({ point, box: make("input", { type: "checkbox", id: `${id}-${n}`, change: judge }) }));
  const note = make("input", { type: "text", id: `${id}-note`, maxlength: 2000, autocomplete: "off" });
  const typed = question.wants_value ? field(question.schema, `${id}-value`) : null;
  const message = make("p.message", { role: "status" });
  const args = question.arguments;
  let isWhole = !args || args.text.length >= args.characters;
  const text = args ? make("pre", { tabindex: 0, class: "args" }, args.text) : null;
  const load = isWhole ? null : make("button", { click: loadAll }, `Load all ${args.characters} characters`);
  const labels = isEffect
    ? [["It took effect", "took_effect"], ["It did not; call it again", "did_not"], ["I do not know", "unknown"]]
    : [[question.kind === "input" ? "Send this value" : question.kind === "approval" ? "Yes, make this call" : "Yes", "approve"], ["No", "deny"]];
  const [yes, ...others] = [...labels, ["Hand over to people", "escalate"]]
    .map(([label, choice]) => make("button", { class: choice, click: () => send(choice) }, label));

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
    if (typed && choice === labels[0][1] && typed.value !== "") body.text = typed.value;
    else if (typed && choice === "approve" && !isEffect) return void (message.textContent = "a value is asked for");
    for (const button of [yes, ...others]) button.disabled = true;
    try {
      const done = await post(`runs/${run}/answers`, body);
      const text = done.taken || done.counts ? "answered" : "sent to the process at the run, which has not taken it yet";
      said(done.taken || done.is_held ? text : "answered; no process is at the run, so it goes on with dagrun resume");
      message.textContent = text;
    } catch (error) {
      const now = error.facts?.now;
      message.textContent = now?.answer ? `${error.message}: answered by ${now.answer.by || "somebody"} (${now.answer.choice})` : error.message;
      if (error.status === 409) return;
      for (const button of others) button.disabled = false;
      judge();
    }
  }
  /** The plan on one side of the change; what goes is dashed, what comes has a thick line. */
  function side(name) {
    const box = make("div", { class: `scroll ${name}`, tabindex: 0 });
    drawing(`runs/${run}/questions/${question.id}/${name}.svg`).then((svg) => box.append(svg), (error) => box.append(error.message));
    return make("figure", make("figcaption", `The plan ${name}`), box);
  }
  judge();
  const head = [
    make("h3", question.title),
    make("p", question.text),
    make("dl.facts", {},
      ...[["step", question.step], ["tool", question.tool], ["effect", question.effect && `${question.effect}: ${question.effect_words}`], ["asked because", question.why]]
        .filter(([, fact]) => fact).flatMap(([name, fact]) => [make("dt", name), make("dd", fact)])),
  ];
  return make("section.question", { id, "aria-label": `question about ${question.step || "the run"}`, "data-question": question.id },
    ...head,
    text ? make("div", make("p.soft", `the exact arguments, ${args.characters} characters, sha256 ${args.sha256}`), text, load) : null,
    question.diff.length ? diff(question.diff) : null,
    question.transcript?.length ? diff(question.transcript) : null,
    question.kind === "patch" ? make("div.sides", side("before"), side("after")) : null,
    question.deadline !== null ? make("p.deadline", { "data-deadline": question.deadline, "data-default": question.default?.choice ?? "" }) : null,
    ...(readOnly ? [make("p.soft", "only looking is allowed here")] : [
      ...boxes.map(({ point, box }) => make("label.tick", box, ` ${point}`)),
      typed ? make("label.typed", `${question.name || (isEffect ? "its output, if it took effect" : "value")} `, typed, make("small", hint(question.schema))) : null,
      make("label.note", "note ", note),
      make("p.buttons", yes, ...others),
    ]),
    message);
}
