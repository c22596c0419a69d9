"""What may run without a question: entries, safe programs, and what each says about arguments."""
