"""Starting other programs, and holding them to what they need."""
