"""A scripted model server for tests of agents; `clawkit.testing` exports its names."""
