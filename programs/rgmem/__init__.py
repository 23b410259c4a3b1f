"""RGMem: evidence, a graph with thresholded operators, and retrieval at several scales; see `method`."""
