"""Sentence embedders that onnxruntime runs in this process."""
