"""One agent: its tools, its model, its prompt, and the loop that uses them."""
