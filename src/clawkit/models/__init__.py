"""Models: catalog, credentials, requests and answers."""
