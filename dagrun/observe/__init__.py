"""Watching runs: progress now; reports, traces and metrics later."""
