"""Planners without a model: plans and patches that are given, and templates that are chosen by rule."""
