"""PraMem: experience from practice on a user's own records, to predict behaviour; see `method`."""

METHODS = {
    "pramem": (
        "method:PraMem",
        "practises on a user's own behaviour records and keeps the experience that rounds agree on",
    ),
}
