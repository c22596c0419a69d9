"""Reports what an agent does to an OpenTelemetry collector."""
