"""Critics: they look at the output of a step that has succeeded, and judge it.

In: a step and its outcome. Out: a `Verdict` (pass, fail or surprising, with a reason). The protocol is
`dagrun.kernel.model.critic.Critic`; `StepFilter` is the base class, which decides whether a critic looks at a step.

- `rules.py` asks a Python function, compares counts with thresholds, checks types and schemas, and compares sources.
- `rubric.py` asks a language model.

Open `rules.py` first. A critic never changes an output and never decides what follows from its verdict: the recovery
table (`dagrun.kernel.decide.recovery`) does.
"""
