"""scikit-learn's own checks on the estimator of arrays."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from adamab import EmbeddingCalibrator, Recipe

# The checks fit hundreds of times; three checkpoints keep the method whole and the wait short.
FAST = Recipe(checkpoints=(0, 10, 30))


@parametrize_with_checks([EmbeddingCalibrator(recipe=FAST, random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
