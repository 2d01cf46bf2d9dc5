"""Calls that several steps share: cached results, equal calls at the same time, and batches.

In: the call of an attempt whose tool has a `cache` or a `batch`. Out: the result of a call, perhaps one that another
step has made. Open `shared_calls.py` first; it has the rules. `single_flight.py` is a call that several attempts wait
for, `batches.py` makes one of many, and `result_cache.py` keeps what an engine knows.

A run whose tools have neither never imports this package. Nothing here decides whether a call may be made: that was
asked of the attempt before.
"""
