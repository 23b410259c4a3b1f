"""What writes queued sessions in the background, and how it treats failures."""
