"""Tools of an HTTP service that an OpenAPI document describes.

In: a document of OpenAPI 3.0, 3.1 or 3.2. Out: a `Toolbox` with a tool for each operation that the host includes. Open
`openapi_tools.py` first. `document.py` reads the file and follows references inside it; `operations.py` turns an
operation into parameters, schemas and an effect; `wire_forms.py` writes values as parameters; `service_calls.py`
makes a call, adds the credentials that the service wants to see, and says what its status means for an effect.

Nothing that a document refers to is fetched, no plan decides about the address or the credentials, and nothing tries
again: dagrun decides that.
"""
