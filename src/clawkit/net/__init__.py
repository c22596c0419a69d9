"""The one HTTP client: where it may connect is decided by address, never by name."""
