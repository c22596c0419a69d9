"""Models: which there are, how they are reached, and what they say."""
