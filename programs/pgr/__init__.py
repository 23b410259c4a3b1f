"""PGR: dated facts and prospection-guided retrieval; see `method`."""
