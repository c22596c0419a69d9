"""The tools of a run, served over the Model Context Protocol."""
