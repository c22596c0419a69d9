"""A scripted model server for tests of agents; `clawkit.testing` offers what is in here."""
