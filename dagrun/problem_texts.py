"""The sentence for each problem of a plan or a patch, by the code of the problem."""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    # Reading: the text of a plan, before there is a plan.
    "DR001": "cannot read {file}: {reason}",
    "DR002": "{file} is not text: {reason}",
    "DR003": "broken {syntax} at line {line}, column {column}: {reason}",
    "DR004": "{reason}; plans use JSON's scalars, without anchors, aliases or tags",
    "DR005": "the plan has {size} bytes, the ceiling is {limit} (max_bytes of PlanLimits)",
    "DR006": "nested deeper than {limit} levels",
    "DR007": "the key {key} stands twice in one object",
    "DR008": "{number} is not a number that a plan may hold (no NaN, no infinity, at most {limit} digits)",
    "DR009": "expected {expected}, got {found}",
    "DR010": "unknown field {field}{hint}",
    "DR011": "the field {field} is missing",
    "DR012": "{reason}, got {found}",
    "DR013": "the text holds {reason}, which cannot be stored",
    "DR014": "its author refuses to plan: {reason}",
    # Structure: steps and their dependencies.
    "DR101": "{id} is not a step id: use 1 to 48 of the letters A-Z, a-z, digits, '_' and '-'",
    "DR102": "the id {id} is taken by {first}",
    "DR103": "the id {id} differs from {other} in nothing but upper and lower case",
    "DR104": "step {step} depends on {dependency}, which is not in the plan{hint}",
    "DR105": "step {step} depends on itself",
    "DR106": "these steps wait for each other: {cycle}",
    "DR107": "step {step} names the dependency {dependency} twice",
    "DR108": "the plan has {count} steps, the ceiling is {limit} (max_steps)",
    "DR109": "step {step} has {count} dependencies, the ceiling is {limit} (max_dependencies of PlanLimits)",
    "DR110": "{id} is reserved: {meaning}",
    "DR111": "the plan has no steps",
    "DR112": "step {step}: {reason}",
    "DR113": "the plan has {count} dependencies in all, the ceiling is {limit} (max_edges of PlanLimits)",
    "DR114": "over {limit} dependencies can be checked only if every step stands after those that it waits for; here "
    "{count} belong to steps that do not, or that wait for one that does not: put the steps in such an order",
    # Tools and their arguments.
    "DR201": "step {step} calls {tool}, which is not a known tool{hint}",
    "DR202": "step {step} calls {tool}, which this run does not allow",
    "DR203": "step {step} leaves out {argument}, which {tool} requires ({type})",
    "DR204": "step {step} passes {argument}, which {tool} does not take{hint}",
    "DR205": "step {step} passes {argument} to {tool}: {reason}, got {found}",
    "DR206": "step {step} passes {argument} to {tool}: that one is filled in by the runtime, never by a plan",
    "DR207": "the fallback {fallback} of step {step} does not fit: {reason}",
    "DR208": "step {step} runs {tool} in a worker process, which cannot import it: {reason}",
    "DR209": 'step {step} passes {argument} to {tool}: a secret is passed as {{"$secret": "its name"}}, got {found}',
    "DR210": "step {step} passes the secret {secret} to {tool}, but none of that name is registered{hint}",
    "DR211": "step {step} passes the secret {secret} to {tool}, which may not have it",
    "DR212": "step {step} passes a handle of a secret as {argument}, which {tool} does not take as a secret",
    "DR213": "step {step} holds the secret {secret} itself, which would be recorded; a plan passes a handle of it",
    "DR214": "the policy names the {kind} {name}, which is not known here{hint}",
    "DR215": "a rule of the policy looks at {argument}, which {tool} does not take{hint}",
    "DR216": "records are to be redacted, but the policy names no kind of personal data (redact), and the run has no "
    "redact function; nothing of that kind would be taken out",
    "DR217": "step {step} runs {tool} in the executor {executor}, where no object in memory gets: {reason}; let it run "
    "as a coroutine or in a thread, or pass data or an Artifact",
    "DR218": "step {step} calls {tool}, whose parameter {argument} gets an object of the host, of type {type}: "
    "{reason}; pass it with deps=…",
    "DR219": "step {step} runs {tool} in a worker process, where {argument}, an object of the host, cannot get; let it "
    "run as a coroutine or in a thread, or make the object in the tool",
    "DR220": "{field} takes {size} bytes of JSON as it is written, the ceiling is {limit} (max_argument_bytes of the "
    "policy); raise it, or pass an Artifact",
    "DR221": "step {step} calls {tool}, which {reason}",
    "DR222": "step {step} runs {tool} in the executor {executor}, which does not take it: {reason}",
    # References and conditions.
    "DR301": "{text} is not a reference: {reason}",
    "DR302": "step {step} refers to {reference}, which is not in the plan{hint}",
    "DR303": "step {step} refers to {reference}, but the output of {tool} has no {field}{hint}",
    "DR304": "step {step} passes {reference} as {argument}: {tool} takes {expected}, {producer} gives {found}",
    "DR305": "step {step} refers to its own output in {place}",
    "DR306": "step {step} refers to {reference}, but the run has no such input{hint}",
    "DR307": "step {step} refers to {reference}, which exists only in args and when of a step with for_each",
    "DR308": "{reason}",
    "DR309": "for_each of step {step} must be a list or a reference to one: {reason}",
    "DR310": "step {step} goes through the output of {source}, which the policy keeps out of the record of the run",
    "DR311": "the plan's output refers to {reference}, which is not in the plan{hint}",
    "DR312": "the plan's output refers to {reference}, but the output of {tool} has no {field}{hint}",
    "DR313": "{who} refers to {reference}, an object in memory ({type}): {reason}",
    # Patches: edits of a plan that is running.
    "DR401": "{id} is not in the plan{hint}",
    "DR402": "the id {id} was used in this run before; an id is never used twice, so choose another",
    "DR403": "step {step} has {state}, and what is done cannot be changed",
    "DR404": "step {step} {reason}, and keeps its definition; it can be dropped or replaced",
    "DR405": "step {step} runs {tool}, whose effect cannot be taken back; with cancel: true it is stopped all the same",
    "DR406": "step {step} still needs {dependency}, which the patch drops; rewire or drop it too",
    "DR407": "step {step} would wait for {dependency}, which gives nothing any more: it {state}",
    "DR408": "the patch is stale: it was made from revision {base}, and since then {steps} changed",
    "DR409": "the patch has {count} edits, the ceiling is {limit}",
    "DR410": "step {step} is edited twice; one edit must say all",
    "DR411": "step {step} asks a person less often than {old} did ({why})",
    "DR412": "step {step}: {reason}; a patch cannot raise a ceiling",
    "DR413": "the run would have {count} steps, the ceiling is {limit}",
    "DR414": "the patch changes nothing; give at least one edit, or another output",
    "DR415": "the patch was made from revision {base}, and the plan is at revision {revision}",
    "DR416": "the plan's output refers to {step}, which the patch drops; give the patch an output of its own",
    "DR417": "the run has ended, or is being stopped",
    "DR418": "{old} may have taken effect, so {step} must be the very same call of {tool}, or one that only looks",
    "DR419": "the same patch was tried before",
    "DR420": "the planner's answer is no patch: {reason}",
    "DR421": "the answer broke off: {reason}",
    "DR422": "the planner gives its plan a confidence of {confidence}, and at least {least} is wanted",
    "DR423": "step {step} reads what {dependency} gave, which was released; add a step that makes it again",
    "DR424": "the run would answer with what {step} gave, which was released; give the patch another output, or add a "
    "step that makes it again",
    "DR425": "step {step} goes through the elements of {dependency} and has begun; edit single elements of "
    "{dependency}, or drop or replace {step} as well",
    "DR426": "the planner gives step {step} a confidence of {confidence}, and at least {least} is wanted",
    "DR427": "step {step} calls {tool}, and is no call of the first plan, which the policy freezes (freeze_plan): "
    "{reason}; a patch may drop calls, and repeat them as they were or with their fallback",
    "DR428": "step {step} makes the call of {old} once more, and the policy freezes the plan (freeze_plan), which "
    "makes it once; it may take the place of {old} only if that has had no effect",
    "DR429": "step {step} would no longer wait for {dependency}, which stands before it in the first plan; the policy "
    "freezes that (freeze_plan)",
    "DR430": "the edit of step {step} needs one that is refused, or was made for its sake",
    # The trust boundary: data that others can write, and data that must not leave.
    "DR501": "step {step} passes {what} as {argument} of {tool}; it comes from {way}, which {which}",
    "DR502": "step {step}: the patch was written after {seen} was shown; what it adds may look, and {tool} acts",
    "DR503": "step {step} passes {what} as {argument} of {tool}, which carries it out; it comes from {way}, which must "
    "not leave",
    "DR504": "whether step {step} calls {tool} depends on {what}; it comes from {way}, which {which}",
    "DR505": "the agent of step {step} may call {inner} by itself; it works with what comes from {seen}",
    # Tools: what makes a planner choose the wrong one, or a run do the wrong thing with it.
    "DR801": "the name {tool} would fit any tool",
    "DR802": "the name {tool} is that of several jobs",
    "DR803": "the description of {tool} does not say what it does: {reason}",
    "DR804": "the description of {tool} leaves open what it does: “{words}”",
    "DR805": "{tool} returns {kind}",
    "DR806": "{tool} takes {count} arguments, and a planner fills in more than {most} wrongly",
    "DR807": "{tool} does not describe {arguments}",
    "DR808": "{tool} takes anything as {arguments}",
    "DR809": "{tool} declares no effect, so it counts as effectful: never retried by itself, never stopped",
    "DR810": "{tool} reaches outside, and has no time limit: a call may hang for as long as its run",
    "DR811": "{tool} reaches outside, and does not say how it fails",
    "DR812": "{tool} is {effect}, and nobody said whether a person must agree to its calls",
    "DR813": "{tool} is {effect}, and nothing finds out whether a call of unknown outcome took place",
    "DR814": "{tool} and {other} have the same description, so a planner cannot know which one to call",
    "DR815": "{tool} is {effect}, and takes no context, so it never sees the key that makes a repeated call one call",
    # Advice: the plan runs all the same.
    "DR901": "step {step} depends on {dependency} but uses nothing of it",
    "DR902": "steps {steps} make the same call of {tool}; one would do",
    "DR903": "step {step} depends on {dependency}, which {through} waits for already; without it, the order is the "
    "same",
    "DR904": "steps {steps} wait for one another, and use nothing of one another; without depends_on all {count} run "
    "side by side",
    "DR905": "steps {steps} call {tool} with arguments that differ in {argument} alone; one step with for_each over a "
    "list says it once",
    "DR910": "step {step} calls {tool}, which changes the outside world, and nobody said whether it needs approval",
    "DR911": "step {step} has no time limit: neither the step, nor {tool}, nor the policy names one",
    "DR912": "step {step} calls {tool}, which reaches outside: no fallback and no on_failure say what happens then",
    "DR913": "the policy limits the {kind} {name}, which is not known here{hint}",
    "DR914": "the ceiling of {ceiling} does not bind {tool}: it names no {field}",
    "DR915": "nobody has answered: {question}",
    "DR916": "step {step} asks for {count} attempts, and gets {limit}, as the policy says; only a plan that is made in "
    "Python goes beyond its retry",
    "DR990": "there is more of the kind of {code}; only the first {limit} are listed",
}

# What to do about a finding of `dagrun tools check`, by its code.
MENDS: Mapping[str, str] = {
    "DR801": "name it after what it does and to what, such as load_invoices",
    "DR802": "make a tool of each job: a plan then says which one a step does",
    "DR803": "say in a sentence what it does, with what, and what it returns",
    "DR804": "name the one thing that it does; make a tool of each other thing",
    "DR805": "declare what it returns (a dataclass, a TypedDict, list[str]), so that references to parts are checked",
    "DR806": "split it, give the rarer arguments defaults in the host, or join those that belong together in one model",
    "DR807": "describe each in the section Args: of its docstring, with the unit or form of the value and an example",
    "DR808": "declare the type of each, so that a wrong value is a problem of the plan, not a failure of the run",
    "DR809": 'declare it: effect="pure", "read", "idempotent" or "effectful"',
    "DR810": "declare a timeout in seconds, longer than any good call takes",
    "DR811": "name in a section Raises: of its docstring what it raises (ToolError) and when; or declare a fallback",
    "DR812": "declare needs_approval=True, or False if no call needs a person",
    "DR813": "declare reconcile=, a function that looks by idempotency key whether the call took place",
    "DR814": "say in each description when that tool is the right one",
    "DR815": "take a ToolContext, and pass its idempotency_key to the service",
}
