"""The vocabulary: plans, steps, references, tool contracts, policies, outcomes, events."""
