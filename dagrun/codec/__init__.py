"""Events as text: each event as one line of JSON, and each such line as an event again.

The package takes events (`dagrun.kernel.model.event`) and returns the texts of their records; it reads these texts back
into equal events. Open `event_codec.py` first: it has the format, and the functions `encode`, `decode` and `events_of`.
`type_codecs.py` makes writers and readers from type hints, and `json_text.py` writes and reads single JSON values.

Records come from outside. They are read strictly, and only classes of the vocabulary are ever made from them: nothing
is unpickled, imported or evaluated.
"""
