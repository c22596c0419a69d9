"""Which tools a run has, and which of their calls are allowed, from configuration and scope."""
