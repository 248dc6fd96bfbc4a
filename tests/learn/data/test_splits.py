"""Who holds which samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.app.reports import figure_style, pictures
from tacit.auditing.findings import PlanCoverage, Remark, Verdict
from tacit.auditing.search.planner import Plan, Proposal
from tacit.core.errors import ConfigError
from tacit.core.protocol_facts import ReasonCode
from tacit.lab.attacks.attack_result import Finding
from tacit.lab.papers.reproduction import Chart
from tacit.learn.data.datasets import load
from tacit.learn.data.splits import by_owner, check_split, dirichlet, iid, label_table, shards

Y = load("digits", share=1).y


def rng(seed=0):
    return np.random.default_rng(seed)


# --- no sample at two parties, and nobody without ------------------------------------------------------------------


@st.composite
def splits(draw):
    """Some split of some samples, and how many samples there are."""
    count = draw(st.integers(1, 120))
    parties = draw(st.integers(1, count))
    labels = draw(st.lists(st.integers(0, draw(st.integers(0, 9))), min_size=count, max_size=count))
    y, generator = np.array(labels, np.int64), rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["iid", "shards", "dirichlet", "owner"]))
    if kind == "iid":
        return iid(count, parties, generator), parties, count
    if kind == "shards":
        return shards(y, parties, draw(st.integers(1, count // parties)), generator), parties, count
    if kind == "dirichlet":
        return dirichlet(y, parties, draw(st.sampled_from([0.001, 0.1, 1.0, 1e6])), generator), parties, count
    parties = draw(st.integers(1, len(np.unique(y))))
    return by_owner(y, parties, generator), parties, count


@settings(deadline=None, max_examples=300)
@given(splits())
def test_every_sample_is_at_one_party_and_nobody_is_without(split):
    parts, parties, count = split
    assert len(parts) == parties
    assert min(map(len, parts)) >= 1
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(count))
    assert all(map(np.array_equal, parts, check_split(parts, count)))


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_owners_stay_whole_and_no_party_has_an_owner_too_many(sizes, data):
    """The largest party is larger than the smallest by no more than the smallest owner that was given to it."""
    owner = np.repeat(np.arange(len(sizes)) * 7, sizes)
    parties = data.draw(st.integers(1, len(sizes)))
    parts = by_owner(owner, parties, rng(data.draw(st.integers(0, 99))))
    held = [set(owner[part].tolist()) for part in parts]
    assert sum(map(len, held)) == len(sizes)
    if parties < len(sizes):
        fewest = min(map(len, parts))
        for part, owners in zip(parts, held, strict=True):
            assert len(part) - fewest <= min(sizes[each // 7] for each in owners)


@pytest.mark.parametrize(
    "split",
    [
        lambda generator: iid(len(Y), 9, generator),
        lambda generator: shards(Y, 9, 2, generator),
        lambda generator: dirichlet(Y, 9, 0.5, generator),
        lambda generator: by_owner(Y, 9, generator),
    ],
    ids=["iid", "shards", "dirichlet", "by_owner"],
)
def test_splits_repeat_with_the_generator(split):
    first, again, other = (split(rng(seed)) for seed in (3, 3, 4))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


# --- each kind -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "parties"), [(10, 1), (10, 3), (10, 10), (1797, 9)])
def test_iid_parts_are_of_one_size(count, parties):
    sizes = [len(part) for part in iid(count, parties, rng())]
    assert max(sizes) - min(sizes) <= 1


def test_two_chunks_a_node_are_at_most_four_labels():
    """Paper 004, 4.3, with as many samples, labels and nodes."""
    y = np.arange(50000) % 10
    parts = shards(y, 48, 2, rng())
    labels = [len(np.unique(y[part])) for part in parts]
    assert max(labels) <= 4
    assert np.mean(labels) < 3
    assert {len(part) for part in parts} <= {1040, 1041, 1042}


def test_more_chunks_are_more_labels():
    few, many = (np.mean([len(np.unique(Y[part])) for part in shards(Y, 9, chunks, rng())]) for chunks in (1, 20))
    assert few < 4
    assert many > 8


def test_what_a_chunk_has_of_a_label_does_not_follow_the_order_of_samples():
    first, second = shards(np.zeros(100, np.int64), 2, 1, rng())
    assert first.min() < second.max()
    assert second.min() < first.max()


def test_as_many_parties_as_samples_get_one_each():
    parts = dirichlet(np.zeros(20, np.int64), 20, 0.01, rng())
    assert [len(part) for part in parts] == [1] * 20


def test_samples_of_a_label_are_shuffled_before_they_are_dealt_out():
    first, second = dirichlet(np.zeros(100, np.int64), 2, 1e6, rng())
    assert first.min() < second.max()
    assert second.min() < first.max()


def test_a_small_alpha_means_few_labels_and_a_large_one_all():
    def largest_share(alpha):
        parts = dirichlet(Y, 9, alpha, rng(2))
        return np.mean([np.bincount(Y[part]).max() / len(part) for part in parts])

    assert largest_share(0.01) > 0.5
    assert largest_share(1e6) < 0.13


def test_as_many_parties_as_owners_are_the_owners_in_their_order():
    owner = np.array([5, 2, 2, 9, 5, 2])
    assert [part.tolist() for part in by_owner(owner, 3, rng())] == [[1, 2, 5], [0, 4], [3]]


def test_owners_are_grouped_so_that_parties_have_about_as_much():
    sizes = rng(1).integers(1, 200, 120)
    owner = np.repeat(np.arange(120), sizes)
    held = [len(part) for part in by_owner(owner, 9, rng())]
    assert max(held) - min(held) <= 0.01 * sizes.sum() / 9
    first = {tuple(np.unique(owner[by_owner(owner, 9, rng(seed))[0]])) for seed in range(5)}
    assert len(first) == 5  # and the largest owner is not always at the first party


# --- what cannot be split ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [0, -1, 6])
@pytest.mark.parametrize(
    "split",
    [
        lambda parties: iid(5, parties, rng()),
        lambda parties: shards(np.zeros(5, np.int64), parties, 1, rng()),
        lambda parties: dirichlet(np.zeros(5, np.int64), parties, 0.5, rng()),
        lambda parties: by_owner(np.arange(5), parties, rng()),
    ],
    ids=["iid", "shards", "dirichlet", "by_owner"],
)
def test_fewer_samples_than_parties_are_refused_with_the_way_out(split, parties):
    with pytest.raises(ConfigError, match="5 samples can be split among 1 to 5 parties") as caught:
        split(parties)
    assert ("fewer parties, or more samples" in str(caught.value)) == (parties > 5)


def test_no_samples_at_all_are_refused():
    with pytest.raises(ConfigError, match="no samples"):
        iid(0, 1, rng())


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e-200])
def test_impossible_concentrations_are_refused(alpha):
    with pytest.raises(ConfigError, match="alpha"):
        dirichlet(np.zeros(5, np.int64), 2, alpha, rng())


@pytest.mark.parametrize("chunks", [0, -1, 4])
def test_more_chunks_than_samples_are_refused(chunks):
    with pytest.raises(ConfigError, match="7 samples give 2 parties 1 to 3 chunks"):
        shards(np.zeros(7, np.int64), 2, chunks, rng())


def test_more_parties_than_owners_are_refused():
    with pytest.raises(ConfigError, match="3 owners cannot be 4 parties; try: take at most 3"):
        by_owner(np.array([1, 1, 2, 2, 3]), 4, rng())


def test_samples_of_nobody_cannot_be_split_by_owner():
    with pytest.raises(ConfigError, match="iid, shards or dirichlet"):
        by_owner(load("digits").owner, 4, rng())


@pytest.mark.parametrize("split", [lambda y: shards(y, 2, 2, rng()), lambda y: dirichlet(y, 2, 0.5, rng())])
@pytest.mark.parametrize(("y", "said"), [(np.zeros((9, 50), np.int64), "every place"), (np.zeros(9), "numbers")])
def test_what_has_no_labels_cannot_be_split_by_label(split, y, said):
    with pytest.raises(ConfigError, match=said) as caught:
        split(y)
    assert "split them as iid or by owner" in str(caught.value)


def test_all_that_is_wrong_with_a_split_from_elsewhere_is_told():
    with pytest.raises(ConfigError) as caught:
        check_split([[0, 1], [], [1, 9], [-2]], 5)
    assert caught.value.problems == (
        "party 1 has no samples; try: give it some, or take fewer parties",
        "party 2 has sample 9, but they are numbered 0 to 4",
        "party 3 has sample -2, but they are numbered 0 to 4",
        "sample 1 is given out twice; each sample can be at one party only",
    )
    with pytest.raises(ConfigError, match="at least 1 party"):
        check_split([], 5)
    assert [part.tolist() for part in check_split([[3, 0], [1]], 5)] == [[0, 3], [1]]


# --- who has which labels ------------------------------------------------------------------------------------------


def test_the_table_counts_labels_a_row_a_party():
    y = np.array([0, 1, 1, 3])
    assert label_table(y, [np.array([0, 3]), np.array([1, 2])], 4).tolist() == [[1, 0, 0, 1], [0, 2, 0, 0]]


def test_the_table_of_text_counts_characters_and_that_of_numbers_samples():
    assert label_table(np.array([[0, 1], [1, 1]]), [np.array([0]), np.array([1])], 2).tolist() == [[1, 1], [0, 2]]
    assert label_table(np.array([0.5, 2.0, 3.5]), [np.array([0, 2]), np.array([1])], 0).tolist() == [[2], [1]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("parties", "classes"), [(9, 10), (60, 3), (200, 3), (9, 78), (9, 300), (9, 1)])
def test_the_picture_says_who_holds_what(parties, classes, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib")
    table = rng().integers(0, 70, (parties, classes))
    table[0, 0] = 77
    pictures.labels(table, str(tmp_path / "labels.svg"))
    # Text is drawn as outlines, with what it says beside them in a comment.
    drawn = (tmp_path / "labels.svg").read_text(encoding="utf-8")
    assert f"<!-- how many samples{' of each label' if classes > 1 else ''} a party holds -->" in drawn
    assert (f"<!-- p8 ({table[8].sum():,}) -->" in drawn) == (parties <= 80)
    assert ("<!-- 77 -->" in drawn) == (parties <= 80 and 1 < classes <= 80)  # the number itself, or its label


def test_the_picture_takes_names(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib")
    path = tmp_path / "labels.svg"
    pictures.labels(np.array([[1, 2], [0, 4]]), str(path), ("north", "south"), ("airplane", "ship"))
    pictures.labels(np.array([[1, 2], [0, 4]]), str(path.with_suffix(".png")))
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    drawn = path.read_text(encoding="utf-8")
    assert all(f"<!-- {said} -->" in drawn for said in ("north (3)", "south (4)", "airplane", "ship"))


# --- lines and bars ------------------------------------------------------------------------------------------------


@pytest.fixture
def figures(monkeypatch):
    """Returns the figures that are drawn, before they are files."""
    pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib")
    drawn, figure = [], figure_style.figure

    def kept(*given):
        drawn.append(figure(*given))
        return drawn[-1]

    monkeypatch.setattr(figure_style, "figure", kept)
    return drawn


def looks(line):
    return line.get_color(), line.get_marker(), line.get_linestyle(), line.get_markerfacecolor()


def test_no_two_lines_look_alike():
    styles = [figure_style.style(place, dashed) for place in range(64) for dashed in (False, True)]
    assert len({tuple(style.items()) for style in styles}) == len(styles)
    grey = {(style["marker"], style["linestyle"]) for style in styles[:32]}
    assert len(grey) == 32, "nor without colours, as long as there are sixteen of each sort"


def test_charts_tell_lines_apart_and_hide_none_of_them(figures, tmp_path):
    lines = {f"p = {place}": (range(9), [place] * 9) for place in range(10)}
    formulas = {f"{name}, formula": line for name, line in lines.items()}
    chart = Chart("many", "users (T)", "sums", {**lines, **formulas}, dashed=tuple(formulas))
    pictures.charts([chart], str(tmp_path / "many.png"))
    figure, axes = figures[-1]
    assert len({looks(line) for line in axes.lines}) == 20
    assert axes.lines[3].get_color() == axes.lines[13].get_color(), "a line and its formula go together"
    assert all(float(tick).is_integer() for tick in axes.get_yticks())
    below, above = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert below.y1 < above.y0
    assert below.y0 > figure.bbox.y0 - 5
    assert axes.get_legend().handlelength > 4, "long enough to tell dashes from lines"


def test_counts_that_are_all_zero_begin_at_zero(figures, tmp_path):
    none = [Finding("x", "one", "lies that work", 0.0, 0.0, 0.0, 10, False, "")]
    pictures.intervals(none, str(tmp_path / "none.png"))
    axes = figures[-1][1]
    low, high = axes.get_xlim()
    assert -0.05 < low <= 0 < 1 <= high
    assert [float(tick) for tick in axes.get_xticks() if low <= tick <= high] == [0.0, 1.0]


def way(place):
    return Remark.of(ReasonCode.OWN, text=f"way {place}")


def test_a_plan_ends_near_its_costs_and_marks_verdicts_apart(figures, tmp_path):
    assert len(set(pictures.MARKS.values())) == len(pictures.MARKS)
    verdicts = ((Verdict.HOLDS, False), (Verdict.HOLDS, True), (Verdict.LEAKS_BY_DESIGN, False))
    nothing = PlanCoverage(0, 0, 0, 0, 0, 0.0, None)
    proposals = tuple(
        Proposal(
            "secagg",
            {},
            way(place),
            1e6 * 6**place,
            0,
            verdict,
            nothing,
            0,
            0,
            0,
            needs_drift=needs_drift,
        )
        for place, (verdict, needs_drift) in enumerate(verdicts)
    )
    pictures.costs(Plan(9, 1, 10, 0.0, 1000, proposals, 1.0, 1e-5, 1.0), str(tmp_path / "plan.png"))
    axes = figures[-1][1]
    assert axes.get_xlim()[1] < 2 * 36
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}) == 3
    assert "36 MB, leaks by design" in {text.get_text() for text in axes.texts}
