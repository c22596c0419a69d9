"""Whether, where and with what rights a command may run: pure decisions before anything starts."""
