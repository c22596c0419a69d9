"""Skills: folders with instructions that a model reads when needed."""
