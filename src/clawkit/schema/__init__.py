"""Parameter schemas in the form each model provider accepts."""
