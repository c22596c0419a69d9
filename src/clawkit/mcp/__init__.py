"""The Model Context Protocol: the client, and code shared by client and server."""
