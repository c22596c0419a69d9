"""How each API writes its answers and its errors, for the scripted server."""
