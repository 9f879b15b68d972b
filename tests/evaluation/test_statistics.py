import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, norm, ttest_1samp

from adamab.evaluation.statistics import Bootstrap, paired_p


def test_an_interval_holds_the_mean_and_widens_with_chance():
    rng = np.random.default_rng(1)
    hits = (rng.random((5, 400)) < 0.7).astype(float)
    few, many = Bootstrap(5, 100)(hits[:, :100]), Bootstrap(5, 400)(hits)
    assert few.low < few.mean < few.high
    assert many.high - many.low < few.high - few.low
    assert Bootstrap(5, 400)(hits) == many


def _apart(values):
    """The same values with samples of their own for each seed."""
    n_seeds, n_test = values.shape
    apart = np.full((n_seeds, n_seeds * n_test), np.nan)
    for seed, row in enumerate(values):
        apart[seed, seed * n_test : (seed + 1) * n_test] = row
    return apart


def _with_gaps(rng, values, share):
    return np.where(rng.random(values.shape) < share, np.nan, values)


def _width(interval):
    return interval.high - interval.low


def test_a_sample_that_is_drawn_counts_in_every_seed_that_scored_it():
    hits = np.tile(np.arange(200) % 2, (5, 1)).astype(float)
    crossed, nested = Bootstrap(5, 200)(hits), Bootstrap(5, 1000)(_apart(hits))
    overlapping = Bootstrap(5, 200)(_with_gaps(np.random.default_rng(2), hits, 0.3))
    assert _width(nested) < 0.6 * _width(crossed)
    assert _width(nested) < _width(overlapping)
    assert _width(overlapping) > 0.9 * _width(crossed)


def test_the_interval_of_samples_that_all_seeds_share_by_hand():
    hits = (np.random.default_rng(1).random((4, 50)) < 0.7).astype(float)
    rng = np.random.default_rng(0)
    seeds = rng.multinomial(4, np.full(4, 0.25), 2000) / 4
    samples = rng.multinomial(50, np.full(50, 0.02), 2000) / 50
    low, high = np.quantile(np.einsum("ds,si,di->d", seeds, hits, samples), [0.025, 0.975])
    interval = Bootstrap(4, 50)(hits)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((hits.mean(), low, high))


def _differences(rng, n_seeds, n_test, lead=0.0):
    """Seeds and samples that both have an effect of their own, and noise."""
    seeds, samples = rng.normal(0, 0.05, (n_seeds, 1)), rng.normal(0, 0.4, (1, n_test))
    return lead + seeds + samples + rng.normal(0, 0.3, (n_seeds, n_test))


def test_the_paired_test_of_samples_that_all_seeds_share_is_by_analysis_of_variance():
    values = _differences(np.random.default_rng(4), 6, 40, lead=0.1)
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    seeds, samples = 40 * values.mean(axis=1).var(ddof=1), 6 * values.mean(axis=0).var(ddof=1)
    both = (rest**2).sum() / (5 * 39)
    assert samples > both  # or the test below says little

    def p_if(drawn):
        """As if the variance of the seeds were known."""
        return 2 * norm.sf(values.mean() / np.sqrt((seeds * 5 / drawn + samples - both) / 240))

    wanted, _ = quad(lambda drawn: p_if(drawn) * chi2.pdf(drawn, 5), 0, np.inf)
    assert paired_p(values) == pytest.approx(wanted)


@pytest.mark.parametrize(("of_seeds", "of_samples"), [(0.0, 0.1), (0.15, 0.1), (0.15, 0.4)])
def test_the_paired_test_keeps_its_size_far_in_the_tail(of_seeds, of_samples):
    """Seeds that agree by luck must not make it sure."""
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(10_000):
        values = rng.normal(0, of_seeds, (5, 1)) + rng.normal(0, of_samples, 100)
        wrong += paired_p(values + rng.normal(0, 0.3, (5, 100))) < 0.001
    assert wrong / 10_000 <= 0.0015


def test_the_paired_test_of_seeds_alone_is_students():
    rng = np.random.default_rng(3)
    values = _differences(rng, 6, 40)
    assert paired_p(_apart(values)) == pytest.approx(ttest_1samp(values.mean(axis=1), 0).pvalue)
    assert paired_p(values[:1]) == pytest.approx(ttest_1samp(values[0], 0).pvalue)


def test_equal_and_constant_differences():
    assert paired_p(np.zeros((5, 10))) == 1.0
    assert paired_p(np.ones((5, 10))) == 0.0
    assert paired_p(np.zeros((1, 1))) == 1.0
