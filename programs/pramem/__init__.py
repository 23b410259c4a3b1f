"""PraMem: experience from practice on a user's own records, to predict behaviour; see `method`."""

METHODS = {
    "pramem": (
        "method:PraMem",
        "predicts past records of a user and keeps what it learned if several tries support it",
    ),
}
