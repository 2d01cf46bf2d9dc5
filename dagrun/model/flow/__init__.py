"""The trust boundary in words: what a policy (`boundary.py`) and a tool (`marks.py`) say about whose data may go where.

In: a `Flow` of a policy, marks of tools. Out: nothing; `dagrun.checks.flow` computes with them. A policy without a
`Flow` has no trust boundary, and nothing is computed.
"""
