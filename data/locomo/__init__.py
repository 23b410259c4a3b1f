"""LoCoMo: very long conversations and questions about them."""
