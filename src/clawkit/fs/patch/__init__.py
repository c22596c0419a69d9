"""Patches over any number of files: read, found a place for, carried out in memory."""
