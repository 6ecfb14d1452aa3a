"""Order samples in time from noisy dissimilarities: a map in one dimension."""

import numpy as np

from psmds_dist import PatternSearchMDS


def dissimilarities(count: int = 200, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Noisy differences between the ages of samples, which come in no order."""
    random = np.random.default_rng(0)
    ages = random.uniform(0, 1000, count)
    matrix = np.abs(ages[:, None] - ages)
    errors = np.triu(random.normal(0, noise * matrix.std(), matrix.shape), 1)
    return np.abs(matrix + errors + errors.T), ages


def main() -> None:
    matrix, ages = dissimilarities()
    fit = PatternSearchMDS(n_components=1, random_state=0).fit(matrix)
    found, true = (np.argsort(np.argsort(values)) for values in (fit.embedding_[:, 0], ages))
    correlation = np.corrcoef(found, true)[0, 1]  # Spearman's; which end is the oldest, dissimilarities do not say
    print(f"normalized stress {fit.normalized_stress_:.4f}; {fit.evidence_.describe()}")
    print("first to last:", ", ".join(map(str, np.argsort(fit.embedding_[:, 0])[:5])), "...")
    print(f"rank correlation with the true order above 0.999: {abs(correlation) > 0.999}")


if __name__ == "__main__":
    main()
