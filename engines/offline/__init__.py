"""The offline engine: answers without weights, key or network."""
