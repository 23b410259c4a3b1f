"""MSC: a question about a few short chats."""
