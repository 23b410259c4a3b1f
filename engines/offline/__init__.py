"""The offline engine: answers without weights, key or network. See `engine` for its limits."""
