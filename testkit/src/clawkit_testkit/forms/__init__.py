"""The format of answers and errors in each API, for the scripted server."""
