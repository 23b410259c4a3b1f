"""RGMem: evidence, a graph with thresholded operators, retrieval at several scales."""

METHODS = {
    "rgmem": (
        "method:RGMem",
        "keeps a graph of concepts and events; a summary changes when enough evidence is there",
    ),
}
