"""Contracts of tools: the parts that pydantic does not cover.

The package takes types, core schemas and values, and returns JSON Schemas, and values that fit them. Open
`dagrun/kernel/model/signature.py` first, which uses it. `json_schemas.py` has forms of values and makes schemas where
pydantic does not. `spilling.py` turns an output that is too large into an artifact. `schema_types.py` looks up a place
in a JSON Schema.

This package never calls a tool.
"""
