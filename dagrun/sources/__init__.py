"""Tools that exist already, made tools of dagrun: from a JSON Schema, from definitions in the formats of others.

In: a schema, and an async function that makes the call. Out: a `Tool` like any other, whose contract is enforced. Open
`schemas.py` first; it has `schema_tool`, and reads the definitions of other libraries. `foreign_schema.py` reads a
schema, which may come from anywhere and counts as hostile; `schema_check.py` holds values to it. `mcp.py` has the tools
of MCP servers: `mcp_config.py` reads which servers there are, `mcp_connection.py` keeps the connection to one.
`openapi/` has the tools of HTTP services, and `network/` decides where connections may go.

No pattern of a schema is executed here, and nothing that a schema refers to is fetched. `import dagrun` imports nothing
of it, and no module of it imports the MCP library before a server is wanted.
"""
