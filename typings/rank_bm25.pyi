from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class BM25Okapi:
    idf: dict[str, float]
    average_idf: float
    epsilon: float

    def __init__(
        self,
        corpus: Sequence[Sequence[str]],
        tokenizer: None = None,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
    ) -> None: ...
    def get_scores(self, query: Sequence[str]) -> NDArray[np.float64]: ...
