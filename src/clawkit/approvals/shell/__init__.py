"""Shell commands as data: a closed part of bash that is read exactly as bash reads it."""
