"""Decisions of a run as pure functions: facts in, a decision out.

In: an outcome, an exception, a question, a patch, and what the policy says about them. Out: the reaction, in
values that the runtime carries out: retry, ask, replan, skip, stop; the kind of a failure; the status of a run.

Open `recovery.py` first: its table has the reaction to each outcome; the status of a run is below it. `classify.py`
turns an exception into a failure, which `exception_text.py` writes. `questions.py` words questions to people,
`replanning.py` decides when the planner is not asked again, `briefs.py` what it is told, and `durations.py` estimates
the durations of calls.

Nothing here awaits, reads a clock or draws a random number (they are passed in), and nothing changes a graph.
"""
