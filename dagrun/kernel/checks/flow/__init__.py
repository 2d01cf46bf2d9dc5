"""The trust boundary of a plan: the sources of each step's data, and the places that do not accept them.

A plan says where every argument comes from, so all of this is worked out when a plan is checked and when a patch is
spliced. A run does nothing about it: a call that a person must agree to has an `Ask`, as for any other rule. Nothing
here is imported unless the policy has a `Flow`.

Open `labels.py` first, which has the rules; `sources.py` says what tools and the policy say; `crossings.py` finds the
calls to ask about, and words them; `plan_flow.py` does it for a whole plan.
"""
