"""Language servers: problems that an edit brings into a file."""
