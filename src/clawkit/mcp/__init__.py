"""The Model Context Protocol: what servers and clients share, and the client."""
