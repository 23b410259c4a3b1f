"""Language models in GGUF files, run in this process by llama.cpp: weights by name, and a server on loopback."""
