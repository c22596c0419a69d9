"""The four model APIs: how a request is written, and how the stream of an answer is read."""
