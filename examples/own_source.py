"""A row source of your own: edit distances between words, computed as rows are read."""

import sys

import numpy as np

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS, RowSource


class EditDistances(RowSource):
    """Levenshtein distances between words; the matrix is never formed."""

    def __init__(self, words: list[str]) -> None:
        self.ids = words
        self.shape = len(words), len(words)
        self.content_id = f"edit distances {words}"  # equal words are equal rows: runs can be resumed
        self.lengths = np.array([len(word) for word in words])
        self.letters = np.array([list(word.ljust(self.lengths.max())) for word in words])

    def read(self, lo: int, hi: int, out: np.ndarray) -> None:
        """Compute rows ``lo`` to ``hi``, whoever asks: this process, or Dask workers."""
        for row in range(lo, hi):
            out[row - lo] = self.to_all(self.ids[row])

    def to_all(self, word: str) -> np.ndarray:
        """Distances from a word to all others, which dynamic programming finds side by side."""
        table = np.tile(np.arange(self.letters.shape[1] + 1), (len(self.ids), 1))
        for k, letter in enumerate(word, 1):
            above, table = table, np.full_like(table, k)
            for j in range(1, table.shape[1]):
                change = above[:, j - 1] + (self.letters[:, j - 1] != letter)
                table[:, j] = np.minimum(np.minimum(above[:, j], table[:, j - 1]) + 1, change)
        return table[np.arange(len(self.ids)), self.lengths]


def main() -> None:
    source = EditDistances(sorted(name for name in sys.stdlib_module_names if not name.startswith("_")))
    fit = PatternSearchMDS(n_components=2, random_state=0).fit(source)
    print(f"{source.n} module names: Stress-1 {fit.stress1_:.3f}, worst {fit.ids_[fit.point_stress_.argmax()]}")
    through = LandmarkMDS(n_landmarks=60, random_state=0).fit(source)
    print(f"through 60 landmarks, Stress-1 about {through.stress1_:.3f}, of {len(through.ids_)} names")
    near = np.linalg.norm(fit.embedding_ - fit.embedding_[source.ids.index("json")], axis=1)
    print("near json:", ", ".join(source.ids[k] for k in near.argsort()[1:4]))


if __name__ == "__main__":
    main()
