from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.formats.lengths import MOST_BINS, lengths_of


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "30\n10\n\n20\n"),
        ("a.csv", "id,tokens\n1,30\n2,10\n3,20\n"),
        ("a.csv", "30\n10\n20\n"),
        ("a.jsonl", '{"length": 30}\n{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}\n20\n'),
    ],
)
def test_files_of_lengths(name: str, text: str, tmp_path: Path):
    file = tmp_path / name
    file.write_text(text)

    assert lengths_of(str(file)) == (10, 20, 30)


def test_many_lengths_are_binned_with_their_mean_and_longest(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_text("\n".join(map(str, range(1, 5121))))

    found = lengths_of(str(file))

    # bins of ten: 1 to 10 is 5.5 on average
    assert (len(found), found[0], found[-1]) == (MOST_BINS, 5.5, 5120)


def test_quantiles_are_joined_by_straight_lines():
    found = lengths_of("min=100,p50=200,max=1000")

    assert found[0] == pytest.approx(100, abs=1)
    assert found[MOST_BINS // 4] == pytest.approx(150, abs=1)
    assert found[MOST_BINS * 3 // 4] == pytest.approx(600, abs=2)
    assert found[-1] == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p50=400", "does not rise to a max"),
        ("p50=400,max=300", "does not rise to a max"),
        ("half=3", "is no quantile"),
        ("p50=0,max=3", "'0' is no length"),
        ("nowhere.txt", "does not exist"),
    ],
)
def test_what_is_no_distribution_is_refused(text: str, message: str):
    with pytest.raises(InvalidInput, match=message):
        lengths_of(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "12\nmany\n", "'many' is no length"),
        ("a.txt", "\n", "has no lengths"),
        ("a.csv", "id,words\n1,2\n", "has no column tokens"),
        ("a.jsonl", "{1\n", "is no JSON"),
        ("a.jsonl", '{"text": "a"}\n', "is no length"),
        ("a.jsonl", "true\n", "is no length"),
    ],
)
def test_what_is_no_file_of_lengths_is_refused(name: str, text: str, message: str, tmp_path: Path):
    file = tmp_path / name
    file.write_text(text)

    with pytest.raises(InvalidInput, match=message):
        lengths_of(str(file))
