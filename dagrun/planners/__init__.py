"""Planners: with plans and patches that are given, with templates chosen by rule, and with language models."""
