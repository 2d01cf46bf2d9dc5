"""The declarations of the trust boundary: of a policy (`boundary.py`), and of a tool (`marks.py`).

In: a `Flow` of a policy, marks of tools. Out: nothing; `dagrun.kernel.checks.flow` computes with them. A policy without
a `Flow` has no trust boundary, and nothing is computed.
"""
