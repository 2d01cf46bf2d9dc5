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
    "DR007": "the key {key} occurs twice in one object",
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
    "DR103": "the id {id} differs from {other} only in upper and lower case",
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
    "DR114": "over {limit} dependencies can be checked only if every step comes after its dependencies; here {count} "
    "belong to steps that do not, or that depend on one that does not: put the steps in topological order",
    # Tools and their arguments.
    "DR201": "step {step} calls {tool}, which is not a known tool{hint}",
    "DR202": "step {step} calls {tool}, which this run does not allow",
    "DR203": "step {step} leaves out {argument}, which {tool} requires ({type})",
    "DR204": "step {step} passes {argument}, which {tool} does not take{hint}",
    "DR205": "step {step} passes {argument} to {tool}: {reason}, got {found}",
    "DR206": "step {step} passes {argument} to {tool}: the runtime fills it in, never a plan",
    "DR207": "the fallback {fallback} of step {step} does not fit: {reason}",
    "DR208": "step {step} runs {tool} in a worker process, which cannot import it: {reason}",
    "DR209": 'step {step} passes {argument} to {tool}: a secret is passed as {{"$secret": "its name"}}, got {found}',
    "DR210": "step {step} passes the secret {secret} to {tool}, but none of that name is registered{hint}",
    "DR211": "step {step} passes the secret {secret} to {tool}, which is not allowed to have it",
    "DR212": "step {step} passes a handle of a secret as {argument}, which {tool} does not take as a secret",
    "DR213": "step {step} contains the secret {secret} itself, which would be recorded; pass a handle instead",
    "DR214": "the policy names the {kind} {name}, which is not known here{hint}",
    "DR215": "a rule of the policy tests {argument}, which {tool} does not take{hint}",
    "DR216": "records are to be redacted, but the policy names no kind of personal data (redact), and the run has no "
    "redact function: nothing would be redacted",
    "DR217": "step {step} runs {tool} in the executor {executor}, which cannot receive an object in memory: {reason}; "
    "run it as a coroutine or in a thread, or pass data or an Artifact",
    "DR218": "step {step} calls {tool}, whose parameter {argument} takes a dependency of the host, of type {type}: "
    "{reason}; pass it with deps=…",
    "DR219": "step {step} runs {tool} in a worker process, which cannot receive {argument}, a dependency of the host; "
    "run it as a coroutine or in a thread, or create the object in the tool",
    "DR220": "{field} takes {size} bytes of JSON, the ceiling is {limit} (max_argument_bytes of the policy); raise "
    "it, or pass an Artifact",
    "DR221": "step {step} calls {tool}, which {reason}",
    "DR222": "step {step} runs {tool} in the executor {executor}, which does not accept it: {reason}",
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
    "DR310": "step {step} iterates over the output of {source}, which the policy keeps out of the record of the run",
    "DR311": "the plan's output refers to {reference}, which is not in the plan{hint}",
    "DR312": "the plan's output refers to {reference}, but the output of {tool} has no {field}{hint}",
    "DR313": "{who} refers to {reference}, an object in memory ({type}): {reason}",
    # Patches: edits of a plan that is running.
    "DR401": "{id} is not in the plan{hint}",
    "DR402": "the id {id} was used in this run before; an id is never used twice, so choose another",
    "DR403": "step {step} has {state}, and a settled step cannot be changed",
    "DR404": "step {step} {reason}, and keeps its definition; it can be dropped or replaced",
    "DR405": "step {step} runs {tool}, whose effect cannot be undone; with cancel: true it is stopped anyway",
    "DR406": "step {step} still needs {dependency}, which the patch drops; rewire or drop it too",
    "DR407": "step {step} would wait for {dependency}, which will have no output: it {state}",
    "DR408": "the patch is stale: it was made from revision {base}, and since then {steps} changed",
    "DR409": "the patch has {count} edits, the ceiling is {limit}",
    "DR410": "step {step} is edited twice; combine the edits into one",
    "DR411": "step {step} asks a person less often than {old} did ({why})",
    "DR412": "step {step}: {reason}; a patch cannot raise a ceiling",
    "DR413": "the run would have {count} steps, the ceiling is {limit}",
    "DR414": "the patch changes nothing; give at least one edit, or another output",
    "DR415": "the patch was made from revision {base}, and the plan is at revision {revision}",
    "DR416": "the plan's output refers to {step}, which the patch drops; give the patch an output of its own",
    "DR417": "the run has ended, or is being stopped",
    "DR418": "{old} may have taken effect, so {step} must make the same call of {tool}, or one without an effect",
    "DR419": "the same patch was tried before",
    "DR420": "the planner's answer is no patch: {reason}",
    "DR421": "the answer broke off: {reason}",
    "DR422": "the planner gives its plan a confidence of {confidence}; the policy requires at least {least}",
    "DR423": "step {step} reads the output of {dependency}, which was released; add a step that computes it again",
    "DR424": "the answer of the run would be the output of {step}, which was released; give the patch another output, "
    "or add a step that computes it again",
    "DR425": "step {step} iterates over the elements of {dependency} and has begun; edit single elements of "
    "{dependency}, or drop or replace {step} as well",
    "DR426": "the planner gives step {step} a confidence of {confidence}; the policy requires at least {least}",
    "DR427": "step {step} calls {tool}, and is not a call of the first plan, which the policy freezes (freeze_plan): "
    "{reason}; a patch may drop calls, and repeat them unchanged or with their fallback",
    "DR428": "step {step} repeats the call of {old}, and the policy freezes the plan (freeze_plan), which makes it "
    "once; it may replace {old} only if that had no effect",
    "DR429": "step {step} would no longer wait for {dependency}, which comes before it in the first plan; the policy "
    "freezes this order (freeze_plan)",
    "DR430": "the edit of step {step} belongs to an edit that is refused",
    # The trust boundary: data that others can write, and data that must not leave.
    "DR501": "step {step} passes {what} as {argument} of {tool}; it comes from {way}, which {which}",
    "DR502": "step {step}: the planner had seen {seen} when it wrote the patch; the steps that it adds may only read, "
    "and {tool} acts",
    "DR503": "step {step} passes {what} as {argument} of {tool}, which sends it outside; it comes from {way}, which "
    "must not leave",
    "DR504": "whether step {step} calls {tool} depends on {what}; it comes from {way}, which {which}",
    "DR505": "the agent of step {step} may call {inner} by itself; its data comes from {seen}",
    # Tools: weaknesses that make a planner choose the wrong one, or a run misuse it.
    "DR801": "the name {tool} would fit any tool",
    "DR802": "the name {tool} describes several jobs",
    "DR803": "the description of {tool} does not say what it does: {reason}",
    "DR804": "the description of {tool} leaves open what it does: “{words}”",
    "DR805": "{tool} returns {kind}",
    "DR806": "{tool} takes {count} arguments, and a planner fills in more than {most} wrongly",
    "DR807": "{tool} does not describe {arguments}",
    "DR808": "{tool} accepts any value as {arguments}",
    "DR809": "{tool} declares no effect, so it counts as effectful: never retried by itself, never stopped",
    "DR810": "{tool} reaches outside, and has no time limit: a call may hang for as long as its run",
    "DR811": "{tool} reaches outside, and does not document its errors",
    "DR812": "{tool} is {effect}, and does not declare whether its calls need approval",
    "DR813": "{tool} is {effect}, and has no way to find out whether a call of unknown outcome took effect",
    "DR814": "{tool} and {other} have the same description, so a planner cannot know which one to call",
    "DR815": "{tool} is {effect}, and takes no context, so it never gets the idempotency key that makes a repeated "
    "call safe",
    # Advice: the plan runs anyway.
    "DR901": "step {step} depends on {dependency} but does not use its output",
    "DR902": "steps {steps} make the same call of {tool}; one is enough",
    "DR903": "step {step} depends on {dependency}, which {through} waits for already; without it, the order is the "
    "same",
    "DR904": "steps {steps} wait for one another, and use no output of one another; without depends_on all {count} "
    "run in parallel",
    "DR905": "steps {steps} call {tool} with arguments that differ only in {argument}; use one step with for_each "
    "over a list",
    "DR910": "step {step} calls {tool}, which changes the outside world, and does not declare whether it needs "
    "approval",
    "DR911": "step {step} has no time limit: neither the step, nor {tool}, nor the policy sets one",
    "DR912": "step {step} calls {tool}, which reaches outside: it has no fallback and no on_failure",
    "DR913": "the policy limits the {kind} {name}, which is not known here{hint}",
    "DR914": "the ceiling of {ceiling} does not bind {tool}: it names no {field}",
    "DR915": "open question: {question}",
    "DR916": "step {step} asks for {count} attempts, and gets {limit}, the limit of the policy; only a plan made in "
    "Python may exceed it",
    "DR990": "there are more problems of {code}; only the first {limit} are listed",
}

# The fix for a finding of `dagrun tools --check`, by its code.
FIXES: Mapping[str, str] = {
    "DR801": "name it after what it does and to what, such as load_invoices",
    "DR802": "make one tool for each job, so that each step of a plan names its job",
    "DR803": "say in a sentence what it does, with what, and what it returns",
    "DR804": "name the one thing that it does; make other tools for the other things",
    "DR805": "declare what it returns (a dataclass, a TypedDict, list[str]), so that references to parts are checked",
    "DR806": "split it, give the rarer arguments defaults in the host, or combine related ones in one model",
    "DR807": "describe each in the section Args: of its docstring, with the unit or form of the value and an example",
    "DR808": "declare the type of each, so that a wrong value is a problem of the plan, not a failure of the run",
    "DR809": 'declare it: effect="pure", "read", "idempotent" or "effectful"',
    "DR810": "declare a timeout in seconds, longer than any good call takes",
    "DR811": "list its errors (ToolError) and their causes in a section Raises: of its docstring; or declare a "
    "fallback",
    "DR812": "declare needs_approval=True, or False if no call needs a person",
    "DR813": "declare reconcile=, a function that looks up by idempotency key whether the call took effect",
    "DR814": "say in each description when that tool is the right one",
    "DR815": "take a ToolContext, and pass its idempotency_key to the service",
}
