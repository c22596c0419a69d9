"""Guards over the calls of a run: pure rules that look at what was called and what came of it."""
