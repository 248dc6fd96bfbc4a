"""Bytes against K and E of paper 003."""

from tacit.core.progress import ignore_progress
from tacit.lab.papers.p003 import bytes as p003_bytes


def test_fewer_users_in_a_sum_send_fewer_bytes():
    few, all_of_them = (p003_bytes.count_bytes(summed, users=10, entries=3) for summed in (4, 10))
    assert 0 < few < all_of_them
    longer = p003_bytes.count_bytes(4, users=10, entries=103)
    assert longer - few >= 4 * 100 * 4, "four users send a hundred numbers more each, of four bytes"


def test_rows_follow_from_the_bytes_of_one_round(monkeypatch):
    monkeypatch.setattr(p003_bytes, "count_bytes", lambda summed: 1_000_000 * summed)
    by_k, by_e, power, saved = p003_bytes.run("small", ignore_progress).rows
    assert by_k.ours == "10000.0, 5000.0, 2000.0, 1000.0, 400.0 MB"
    assert (by_k.agrees, by_e.agrees, saved.agrees) == (True, True, True)
    assert (power.ours, saved.ours) == ("1.00", "0.200")
    monkeypatch.setattr(p003_bytes, "count_bytes", lambda summed: 1_000_000 * (100 - summed))
    assert p003_bytes.run("small", ignore_progress).rows[1].agrees is False
