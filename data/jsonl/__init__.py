"""Questions of one's own, one JSON object a line."""
