"""The service: memories over HTTP, with a chat route in the form of OpenAI's."""
