"""Decisions as pure functions: recovery, retry delays, what an exception means."""
