"""The convergence study's files: `convergence.md` for people, `convergence.json`, and the drawings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from adamab.evaluation.statistics import Interval
from adamab.version import __version__
from experiments.convergence_descent import DEMO, PolicyFigures, Summary
from experiments.convergence_figures import NAMES, draw_bound, draw_descents, title
from experiments.pages import Table, as_document
from experiments.theory import Check, noisy_line

ALPHAS = (30, 100)  # of the paper's experiments, whose δ² is not divided by anything


def write_report(
    summaries: Sequence[Summary], checks: Sequence[Check], directory: Path, *, command: str
) -> list[Path]:
    """Write everything and return where it is."""
    directory.mkdir(parents=True, exist_ok=True)
    data = {
        "command": command,
        "adamab": __version__,
        "problems": [summary.to_json() for summary in summaries],
        "first_theorem": {
            "smoothness": noisy_line().smoothness,
            "checks": [
                {
                    "bias": c.name,
                    "steps": len(c.left),
                    "holds": c.holds,
                    "left": c.left[-1],
                    "bound": c.right[-1],
                }
                for c in checks
            ],
        },
        "findings": list(findings(summaries, checks)),
    }
    (directory / "convergence.json").write_text(as_document(data), encoding="utf-8")
    (directory / "convergence.md").write_text(_markdown(summaries, checks, command), encoding="utf-8")
    figures = [*draw_descents(summaries, directory), *draw_bound(checks, directory)]
    return [directory / "convergence.md", directory / "convergence.json", *figures]


def findings(summaries: Sequence[Summary], checks: Sequence[Check]) -> Iterator[str]:
    """What came out, in sentences made from the figures; together they are the first paragraph."""
    yield f"On {_listed([title(s) for s in summaries])}, in this order:"
    yield from (_against_round_robin(summaries, policy) for policy in ("adamab", "random", "oracle"))
    yield _at_the_choice(summaries)
    yield _far_off(summaries)
    yield _first_theorem(summaries, checks)


def _at_the_choice(summaries: Sequence[Summary]) -> str:
    def shares(policy: str, figure: str) -> str:
        return " / ".join(f"{100 * getattr(s.of(policy), figure):.0f} %" for s in summaries)

    constants = summaries[0].constants
    here = " / ".join(_product_alpha(s) for s in summaries)
    return (
        f"With the paper's α = {constants.alpha:g} on δ² itself ADAMAB chose a class with the fewest samples "
        f"(as round-robin always does) in {shares('adamab', 'fewest')} of the rounds. With the product's, "
        f"which is {constants.product_alpha:,g} on δ² relative to its scale (on δ² itself {here}, first to "
        f"last round), it did so in {shares('product', 'fewest')} and chose the same class in "
        f"{shares('product', 'like_adamab')}. Tight chose the same class in {shares('tight', 'like_adamab')} "
        f"and greedy, which has no bonus, in {shares('greedy', 'like_adamab')}."
    )


def _against_round_robin(summaries: Sequence[Summary], policy: str) -> str:
    leads = [s.of(policy).against_round_robin for s in summaries]
    name = {"adamab": "ADAMAB's mean gradient shift δ²", "random": "Random's", "oracle": "The oracle's"}[
        policy
    ]
    return (
        f"{name} is {_verdict(leads)} round-robin's ({', '.join(_percent(i) for i in leads)}; geometric mean "
        "and 95 % interval over seeds)."
    )


def _verdict(leads: Sequence[Interval]) -> str:
    """`below`, or how often which."""
    words = ["below" if i.high < 0 else "above" if i.low > 0 else "not told apart from" for i in leads]
    if len(set(words)) == 1:
        return words[0]
    counts = [f"{word} ({words.count(word)} of {len(words)})" for word in dict.fromkeys(words)]
    return " or ".join(counts)


def _far_off(summaries: Sequence[Summary]) -> str:
    constants = [s.constants for s in summaries]
    return (
        f"The theory's constants are far from practice: the theorem's α would be "
        f"{_each([c.theorem_alpha for c in constants])}, where the paper's experiments use "
        f"{ALPHAS[0]} to {ALPHAS[1]}, and the second theorem bounds the regret by "
        f"{_each([c.second_theorem.regret for c in constants])}, where "
        f"{_each([s.of('adamab').mean_regret for s in summaries])} was met, so it says nothing at this size."
    )


def _first_theorem(summaries: Sequence[Summary], checks: Sequence[Check]) -> str:
    known = all(check.holds for check in checks)
    here = all(p.first_theorem for s in summaries for p in s.policies)
    factor = min(check.factor for check in checks)
    return (
        f"The first theorem {'held' if known and here else 'did NOT hold'} at every T, on the problem whose "
        f"smoothness is known and on every descent here; against the worst bias it is tight to a factor of "
        f"{factor:.2f}."
    )


def _markdown(summaries: Sequence[Summary], checks: Sequence[Check], command: str) -> str:
    return "\n\n".join(
        [
            "# Convergence: the paper's analysis on real texts",
            " ".join(findings(summaries, checks)),
            f"Made by `{command}`; the figures by round are in `convergence.json`. What the quantities are "
            "and how the paper is read: `docs/theory.md`. No accuracy is reported from any of this.",
            "![Gradient shift, regret and counts by round](convergence.svg)",
            _how(summaries),
            *(part for summary in summaries for part in _problem(summary)),
            "## The theory's constants and the α of the paper and the product",
            _constants(summaries).markdown(),
            _about_constants(summaries),
            "## The first theorem where β is known",
            _checks(checks).markdown(),
            _about_checks(checks),
            "![Both sides of the first theorem](convergence-bound.svg)",
        ]
    ) + "\n"  # fmt: skip


def _how(summaries: Sequence[Summary]) -> str:
    setting, texts = summaries[0].problem.setting, summaries[0].population.queries.shape[1]
    seeds = len({t.seed for t in summaries[0].traces})
    return (
        f"A population of {texts} texts of each class stands for the true distribution. "
        f"{_whose(summaries)} Training samples are drawn from it with replacement: they are independent "
        "draws, and the true gradient is the "
        f"population's, without error. Each descent starts with {setting.given} samples per class and takes "
        f"{setting.rounds} rounds of one sample and one full-batch step at a constant rate; {seeds} seeds. "
        "The networks are those of the presets `default` and `paper` without dropout and with GELU for ReLU, "
        "because the theorems ask for a smooth loss; class inputs are the descriptions. δ² is not divided by "
        "a scale, and ADAMAB and tight have an α of the paper; the line of the product's α divides δ² as the "
        "default recipe does, for the choice alone. That α is meant for five samples per round: with one, as "
        "here, the scale is about twenty times smaller, and so is the α on δ² itself. The oracle chooses the "
        "class with the smallest true δ²(C) and exists in this study only. Regret is δ²(C) of the chosen "
        "class above that smallest value, on the policy's own path."
    )


def _whose(summaries: Sequence[Summary]) -> str:
    """Where the texts come from, and what else they serve."""
    names = {s.problem.set for s in summaries}
    parts = []
    if names - {DEMO}:
        parts.append(
            "HWU64's are a part of its training file, drawn by hash, that serves this analysis alone: no "
            "other experiment gives, draws, develops on or tests them."
        )
    if DEMO in names:
        parts.append(
            "The support desk's are those that its given examples and recorded samples come from; none is a "
            "test text."
        )
    return " ".join(parts)


def _product_alpha(summary: Summary) -> str:
    return " to ".join(_number(alpha) for alpha in summary.constants.product_alpha_here)


def _problem(summary: Summary) -> Iterator[str]:
    yield f"## {title(summary)}"
    columns = (
        "Policy", "δ², mean", "δ², last pass", "against round-robin", "Regret, mean",
        "Chosen / smallest class, most", "Largest / smallest class, most", "‖∇L‖², smallest",
        "First theorem's bound",
    )  # fmt: skip
    yield Table("Policies", columns, tuple(_row(p) for p in summary.policies)).markdown()
    first, last = (float(summary.curve("adamab", "loss")[:, t].mean()) for t in (0, -1))
    slopes = [float(summary.curve("adamab", "slope")[:, t].mean()) for t in (0, -1)]
    grows = ", so it is still leaving the plateau of its random start" if slopes[1] > slopes[0] else ""
    yield (
        f"On ADAMAB's paths L fell from {first:.3f} to {last:.3f} and ‖∇L‖² "
        f"{'grew' if grows else 'fell'} from {_number(slopes[0])} to {_number(slopes[1])}{grows}."
    )


def _row(p: PolicyFigures) -> tuple[str, ...]:
    against = "" if p.policy == "round-robin" else _percent(p.against_round_robin)
    numbers = (p.mean_shift, p.last_shift)
    return (
        NAMES[p.policy], *(_number(x) for x in numbers), against, _number(p.mean_regret),
        f"{p.chosen_ratio:.2f}", f"{p.count_ratio:.2f}", _number(p.smallest_slope), _number(p.bound),
    )  # fmt: skip


def _constants(summaries: Sequence[Summary]) -> Table:
    constants = [s.constants for s in summaries]
    rates = [s.problem.setting.rate * c.curvature for s, c in zip(summaries, constants, strict=True)]
    rows = (
        ("parameters d", *(f"{c.analysis.dimension:,}" for c in constants)),
        ("largest entry of a gradient, G", *(_number(c.analysis.gradient_bound) for c in constants)),
        ("largest norm of a gradient, B", *(_number(c.gradient_norm) for c in constants)),
        ("d G²", *(_number(c.analysis.squared_norm) for c in constants)),
        ("**α of the theorem**", *(f"**{_number(c.theorem_alpha)}**" for c in constants)),
        ("α from norms (ours)", *(_number(c.norm_alpha) for c in constants)),
        ("α of the paper's experiments, used here", *(f"{c.alpha:g}" for c in constants)),
        ("α of the product, on relative δ²", *(f"{c.product_alpha:,g}" for c in constants)),
        ("the same on δ² itself, first to last round", *(_product_alpha(s) for s in summaries)),
        ("M, for the theorem's α", *(f"{c.ratio_bound:.3f}" for c in constants)),
        ("M, for every T", *(f"{c.ratio_bound_any_rounds:.3f}" for c in constants)),
        ("M, for the paper's α", *(_number(c.ratio_bound_of_alpha) for c in constants)),
        ("samples up to which tight explores", *(f"{c.tight_count_limit:.1f}" for c in constants)),
        ("second theorem's bound", *(_number(c.second_theorem.total) for c in constants)),
        ("‖∇L‖² that it bounds", *(_number(s.of("adamab").smallest_slope) for s in summaries)),
        ("largest curvature met", *(_number(c.curvature) for c in constants)),
        ("rate times curvature", *(f"{rate:.2f}" for rate in rates)),
    )
    return Table("Constants", ("", *(title(s) for s in summaries)), rows)


def _about_constants(summaries: Sequence[Summary]) -> str:
    constants = [s.constants for s in summaries]
    met = max(s.of("adamab").chosen_ratio for s in summaries)
    bound = min(c.ratio_bound for c in constants)
    small_rate = all(s.problem.setting.rate * s.constants.curvature < 1 for s in summaries)
    return (
        "The theorem's α grows with the square of the gradients, and so with the square of the logit scale, "
        "which a fixed α ignores. Most of its size comes from bounding the norm of a gradient by sqrt(d) G, "
        "as if every entry were as large as the largest one. The same argument with the norms themselves, "
        f"which is ours, asks for {_each([c.norm_alpha for c in constants])}. With the paper's α the lemma "
        "guarantees no more than the last M of the table. What was met: when ADAMAB chose a class, it "
        f"had at most {met:.2f} times the samples of the smallest, "
        f"{'within' if met <= bound else 'NOT within'} the M = {bound:.2f} of the theorem's α. The lemma's "
        "own wording, all pairs of classes at all times, cannot hold for whole numbers: one sample more on "
        "1 is a ratio of 2 (see `docs/theory.md`). G, B and the curvature are the largest that were "
        "met at a few rounds on ADAMAB's paths (10 texts per class for G and B), so the true ones are no "
        f"smaller, and neither is the theorem's α. The rate times the curvature stayed "
        f"{'below' if small_rate else 'NOT below'} one, which is what the first theorem asks "
        "for."
    )


def _checks(checks: Sequence[Check]) -> Table:
    rows = []
    for c in checks:
        factor = f"{c.factor:.2f}" if c.factor < 1e6 else "above 10⁶"
        values = (c.name, str(len(c.left)), _number(c.left[-1]), _number(c.right[-1]))
        rows.append((*values, "yes" if c.holds else "NO", factor))
    header = ("Bias", "Steps", "Smallest ‖∇L‖²", "Bound", "Bound holds at every T", "Bound / left side")
    return Table("The first theorem", header, tuple(rows))


def _about_checks(checks: Sequence[Check]) -> str:
    return (
        f"Logistic regression on {len(noisy_line().x)} random points, β = σ_max²/4m = "
        f"{noisy_line().smoothness:.4f}, rate 1/β. Without a bias that stays, the descent is exponentially "
        "fast and the bound, which falls like 1/T, is far off; against a bias that opposes every gradient it "
        "cannot be much better. With L(w) = βw²/2 the bound at T = 1 is an equality at the rate 1/β and "
        "false for every larger rate, so the theorem's condition cannot be weakened."
    )


def _percent(i: Interval) -> str:
    return f"{100 * i.mean:+.1f} % ({100 * i.low:+.1f}, {100 * i.high:+.1f})"


def _each(values: Sequence[float]) -> str:
    return " / ".join(_number(value) for value in values)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "; ".join(names[:-1]) + f"; and {names[-1]}"


def _number(x: float) -> str:
    if x == 0:
        return "0"
    if x >= 1e5 or x < 1e-3:
        digits, _, power = f"{x:.1e}".partition("e")
        return f"{digits}·10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
