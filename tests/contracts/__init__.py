"""One suite per Protocol, to be run on every implementation."""
