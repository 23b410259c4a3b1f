"""RGMem: evidence, a graph with thresholded operators, retrieval at several scales."""

METHODS = {
    "rgmem": (
        "method:RGMem",
        "a graph of concepts and events with summaries that change when enough evidence is there",
    ),
}
