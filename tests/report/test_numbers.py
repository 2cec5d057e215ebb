import pytest

from escala.report.numbers import bar, chance, energy, gib, mass, money, seconds, short, span
from escala.units import difference, digits, percent


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (short(8.03e9), "8.03 B"),
        (short(1.5e13), "15 T"),
        (digits(0.01234), "0.0123"),
        (digits(6640.4), "6,640"),
        (digits(389_974), "390,000"),
        (digits(0), "0"),
        (short(999_900_000), "1 B"),
        (gib(2**20), "<0.1"),
        (gib(0), "0.0"),
        (energy(56.4 * 3600), "56.4 Wh"),
        (energy(228), "228 J"),
        (gib(74 * 2**30), "74"),
        (gib(7.46 * 2**30), "7.5"),
        (percent(0.4412), "44 %"),
        (chance(0.0), "below 1 %"),
        (chance(0.01), "1 %"),
        (chance(0.1834), "18 %"),
        (chance(0.99), "99 %"),
        (chance(1.0), "above 99 %"),
        (percent(0.0042), "0.4 %"),
        (seconds(19.7), "19.7 s"),
        (seconds(0.0042), "4.2 ms"),
        (seconds(3.3 * 86400), "3.3 days"),
        (seconds(3600 * 26), "26 h"),
        (energy(412 * 3.6e6), "412 kWh"),
        (energy(20_500 * 3.6e6), "20.5 MWh"),
        (energy(1_310 * 3.6e6), "1.31 MWh"),
        (energy(999.6 * 3.6e6), "1 MWh"),
        (energy(999.6 * 3600), "1 kWh"),
        (energy(2_740_000 * 3.6e6), "2.74 GWh"),
        (percent(228.83), "22,883 %"),
        (difference(1.02, 1.0), "2 % slower"),
        (difference(9.0, 1.0), "800 % slower"),
        (difference(229.83, 1.0), "230 times slower"),
        (difference(0.5, 1.0), "50 % faster"),
        (mass(72), "72 kg"),
        (mass(21_900_000), "21,900 t"),
        (money(1248), "$1,248"),
        (money(2.5), "$2.50"),
        (bar(0.5), "████░░░░"),
        (bar(3.0), "████████"),
        (bar(0.001), "█░░░░░░░"),
        (span(190_080, 256_000, seconds), "(2.2 to 2.96 days)"),
        (span(0.5, 2.0, seconds), "(500 ms to 2 s)"),
    ],
)
def test_numbers_for_people(shown: str, expected: str):
    assert shown == expected
