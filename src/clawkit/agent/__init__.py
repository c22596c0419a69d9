"""One run: which tools it has, and later the loop that uses them."""
