"""What an agent does, told to a collector by way of OpenTelemetry.

settings.py  whether it is on, and with what; light
spans.py     events of a conversation made into spans
content.py   messages in spans, where that is wanted
export.py    where spans go
"""
