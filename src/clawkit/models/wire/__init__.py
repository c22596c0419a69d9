"""The four model APIs: writing requests, and reading streamed answers."""
