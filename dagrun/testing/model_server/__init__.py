"""A server on the loopback that plays the APIs of OpenAI and Anthropic, for tests without a model.

In: a script of answers and faults (`script.py`). Out: HTTP answers in the wire formats of the providers, and a record
of each call (`calls.py`).
`server.py` has `FakeModelServer`. `listener.py` accepts connections and reads requests, `player.py` plays one act of
the script to one call, and `connection.py` writes to the socket. The formats are in `openai_responses.py`,
`openai_chat.py` and `anthropic_messages.py`; `wire.py` holds the parts that they share.

Open `server.py` first. The server never contacts a provider and keeps no keys. It runs in threads and in real time.
"""
