"""Reports what an agent does to an OpenTelemetry collector.

settings.py  whether it is on, and with what; light
spans.py     events of a conversation made into spans, their content, and the export
"""
