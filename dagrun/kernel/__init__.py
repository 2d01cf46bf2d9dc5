"""The kernel: what carries out a run, from the vocabulary of plans to the parts of a run. It imports nothing above it.

In: a checked plan, its tools and its policy, as `dagrun.api` puts them together. Out: events, and a `RunResult`.

Open ``runtime/run.py`` first, then follow a run downwards: ``runtime`` runs its steps, ``decide`` decides
what happens after each, ``graph`` keeps its state, ``checks`` checks plans and patches, and ``model`` has the
vocabulary of all.

What few runs have is in `dagrun.features`: the kernel calls a feature by a protocol, and `dagrun.api` passes it in.
Everything else stands on top of both: planners, journals, executors, pages, the command line. Below the kernel are
only the errors.
"""
