"""The only HTTP client: destinations are allowed by address, never by name."""
