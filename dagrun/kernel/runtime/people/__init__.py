"""Questions to people: a reason to ask comes in; an answer and its consequences go out.

Open `human_input.py` first. A question is asked of the tool that made a call, or of the approver (`approvers.py`); the
host answers through the run, and other processes through the journal (`inbox_messages.py`). Every question and every
answer goes on record. Only the step that is asked about waits.

Nothing here decides when a person is asked: the checks, the policy and `dagrun.kernel.decide.questions` do.
"""
