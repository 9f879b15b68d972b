"""scikit-learn's own checks on the estimator of arrays."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from adamab import EmbeddingCalibrator


@parametrize_with_checks([EmbeddingCalibrator(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
