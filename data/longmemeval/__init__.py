"""LongMemEval: questions of six types about many chats with an assistant."""
