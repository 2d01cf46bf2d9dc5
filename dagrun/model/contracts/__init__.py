"""What a contract of a tool needs beyond pydantic.

In: types, core schemas and values. Out: JSON Schemas, and values that fit them.
`json_schemas.py` makes the schema of a type that brings a schema of its own. `computed_fields.py` lets a model that
forbids extra fields take its own output. `spilling.py` turns an output that is too large into an artifact.

Open `dagrun/model/signature.py` first, which uses them. Nothing here ever calls a tool.
"""
