"""The built-in tools, one file each; each module has its tool in TOOL."""
