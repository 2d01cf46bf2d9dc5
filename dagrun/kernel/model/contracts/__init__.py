"""Contracts of tools: the parts that pydantic does not cover.

The package takes types, core schemas and values, and returns JSON Schemas, and values that fit them. Open
`dagrun/kernel/model/signature.py` first, which uses it. `json_schemas.py` makes the schema of a type that has its own
schema. `computed_fields.py` lets a model that forbids extra fields accept its own output. `spilling.py` turns an output
that is too large into an artifact. `schema_types.py` looks up a place in a JSON Schema.

This package never calls a tool.
"""
