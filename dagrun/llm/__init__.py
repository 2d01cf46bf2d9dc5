"""Language models: one small protocol, and models of OpenAI, Anthropic and compatible servers.

In: a `Request` (system text, messages, an optional form for the answer). Out: the pieces of the answer as they come,
and last a `Reply` with the whole text, how it ended, its usage and its cost.

Read first `language_model.py`, the protocol; then `http_model.py`, one call from the request to the reply. It uses an
`Api` (`openai_apis.py`, `anthropic_messages.py`), which writes the body and reads the events;
`event_stream.py`, which reads the stream; and `server_features.py`, which finds out what a server understands.

`strict_schemas.py` rewrites JSON Schemas into the form that strict output modes take, and `strict_answers.py` turns
answers in this form back.

Only this package knows the libraries of the providers. It never tries a call again, never trusts an answer to have the
form that was asked for, and never puts a key into a message.
"""
