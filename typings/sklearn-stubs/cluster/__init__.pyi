from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

class KMeans:
    def __init__(
        self, n_clusters: int = 8, *, n_init: int | Literal["auto"] = "auto", random_state: int | None = None
    ) -> None: ...
    def fit_predict(self, X: ArrayLike, y: Any = None) -> NDArray[np.int32]: ...
