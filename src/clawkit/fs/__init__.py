"""Files: the FileSystem Protocol, its local implementation, and containment to the workspace."""
