"""Pictures and documents: decoded in a process of their own."""
