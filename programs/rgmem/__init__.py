"""RGMem: evidence, a graph with thresholded operators, and retrieval at several scales; see `method`."""

METHODS = {
    "rgmem": (
        "method:RGMem",
        "a graph of concepts and events with summaries that change when enough evidence is there",
    ),
}
