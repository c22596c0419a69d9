"""Language servers: problems that an edit introduces."""
