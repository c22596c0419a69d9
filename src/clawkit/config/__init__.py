"""Configuration: one JSON5 file, read into typed sections, edited without losing comments."""
