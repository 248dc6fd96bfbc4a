"""Paper 004, Table 2 and Figure 2: the fraction α to select so that a fraction β is sent, by the receiver's degree.

By Equation (1), β = α (1 − (1 − α)^(δ−1)) with random subsampling: an entry is sent only if another neighbour of the
receiver selected it too. The table inverts this for β of 30 and 50 % and degrees 3 and 6; the figure draws it. Section
4.6.2 adds that what 48 nodes sent is "practically the same as our theoretical model predicts". We invert the formula,
draw it, and let 48 nodes run the deployed protocol with these α on vectors as long as the paper's model.
"""

from tacit.core.progress import Progress
from tacit.lab.papers.p004.exchange import MODEL, measure_exchange
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Estimate, Near, PaperNumber
from tacit.vectors.sparsify import alpha_for, beta

TABLE = {(0.3, 3): 43.83, (0.3, 6): 34.22, (0.5, 3): 59.70, (0.5, 6): 51.39}
"""Fraction α in per cent, by β and degree."""
NODES = 48
DEGREES = (2, 3, 4, 6, 10, 20)
"""Degrees of the lines of Figure 2."""
ROUNDS: dict[Scale, int] = {"small": 3, "paper": 5}
"""Number of rounds for each α; the paper averages over 5 runs."""


INVERTED = {
    (wanted, degree): DeclaredRow(
        f"α for β = {wanted:.0%} at degree {degree}",
        PaperNumber(given, rounding=0.005),
        Near(0.0, "computed without chance: the printed digits"),
        "%",
    )
    for (wanted, degree), given in TABLE.items()
}
SENT = {
    (wanted, degree): DeclaredRow(
        f"sent by {NODES} nodes of degree {degree} for β = {wanted:.0%}",
        PaperNumber(100 * wanted, rounding=0.5, runs=5),
        Near(0.5, 'the paper gives whole per cent, and "practically the same"'),
        "%",
    )
    for wanted, degree in TABLE
}


def inversion_rows() -> list[Row]:
    """Returns the table, with our own inversion."""
    return [row.measure(Estimate.certain(100 * alpha_for(*key))) for key, row in INVERTED.items()]


def sent_row(wanted: float, degree: int, entries: int, rounds: int) -> Row:
    """Returns the fraction of entries that nodes send to each other when they select α of them."""
    alpha = alpha_for(wanted, degree)
    shared = [
        100 * measure_exchange("cesar", NODES, degree, entries, share=alpha, sparsifier="random", seed=seed).shared
        for seed in range(rounds)
    ]
    return SENT[wanted, degree].measure(Estimate.over(shared), f"{alpha:.2%} selected of {entries:,} entries")


def figure2() -> Chart:
    """Returns β against α, with one line per degree."""
    alphas = [i / 50 for i in range(1, 51)]
    lines = {f"degree {degree}": (alphas, [beta(alpha, degree) for alpha in alphas]) for degree in DEGREES}
    lines["β = α"] = (alphas, alphas)
    for degree in (3, 6):
        points = sorted((given / 100, wanted) for (wanted, each), given in TABLE.items() if each == degree)
        lines[f"paper, Table 2, degree {degree}"] = ([at for at, _ in points], [sent for _, sent in points])
    return Chart(
        "Fraction sent by fraction selected (s = 1)",
        "fraction that nodes select (α)",
        "fraction that is sent (β)",
        lines,
        dashed=("β = α", "paper, Table 2, degree 3", "paper, Table 2, degree 6"),
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Inverts the formula, and measures what is sent."""
    rows = inversion_rows()
    for done, (wanted, degree) in enumerate(TABLE):
        progress(f"{NODES} nodes of degree {degree}, β = {wanted:.0%}", done / len(TABLE))
        rows.append(sent_row(wanted, degree, MODEL, ROUNDS[scale]))
    progress("table 2", 1.0)
    return Result(tuple(rows), (figure2(),))


REPRODUCTION = Reproduction(
    name="004-table2",
    title="Fraction to select for a fraction to be sent",
    run=run,
    declared=(*INVERTED.values(), *SENT.values()),
    unstated=(
        "Degrees of Figure 2 besides 3 and 6: we run 2, 4, 10 and 20.",
        "Entries sent with random subsampling: Table 3 has only rows of TopK, by their overhead.",
        "Entries selected from: normal vectors here, which makes no difference to random subsampling.",
    ),
    changed=("Entries sent: one round for each of 3 seeds, 5 at paper scale. The paper measures whole trainings.",),
)
