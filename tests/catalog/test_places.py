import pytest

from escala.catalog.places import Price, countries, operator_pue, operators, site
from escala.errors import InvalidInput


@pytest.mark.parametrize("country", countries())
def test_every_grid_lies_between_hydro_and_coal(country: str):
    # 10 to 1000 g/kWh
    assert 10e-3 / 3.6e6 < site(country).carbon_kg_per_j < 1.0 / 3.6e6


@pytest.mark.parametrize("operator", operators())
def test_every_pue_is_above_one_with_source_and_year(operator: str):
    number = operator_pue(operator)

    assert 1 < number.value < 2
    assert number.source.title
    assert number.date.startswith("20")


def test_an_unknown_place_has_the_world_pue_and_no_carbon():
    found = site()

    assert (found.pue, found.node_power_ratio, found.carbon_kg_per_j, found.country) == (
        1.56,
        1.5,
        None,
        None,
    )


def test_countries_have_codes_and_names():
    assert site("Spain").country == site("es").country == "ES"
    assert site("France").carbon_kg_per_j == pytest.approx(0.056 / 3.6e6, rel=1e-12)


def test_a_price_keeps_its_day_and_source():
    found = site(price=Price(usd_per_device_hour=2.5, date="2026-11-01", source="an offer"))

    assert (found.price_usd_per_device_hour, found.price_date, found.price_source) == (
        2.5,
        "2026-11-01",
        "an offer",
    )


def test_an_unknown_country_suggests_near_ones():
    with pytest.raises(InvalidInput, match="did you mean Spain"):
        site("Spian")


def test_an_unknown_operator_is_refused():
    with pytest.raises(InvalidInput, match="unknown operator 'acme'"):
        site(operator="acme")
