import pytest

from escala.errors import InvalidInput
from escala.measurement.job.request import PRACTICES, checked_practices, checked_precision


def test_practices_are_taken_once_in_the_order_given():
    assert checked_practices("compile, amp,compile") == ("compile", "amp")
    assert checked_practices("all") == PRACTICES
    assert checked_practices(None) == ()


@pytest.mark.parametrize(("text", "said"), [("ampp", "did you mean amp"), (",", "names no practice")])
def test_unknown_practices_are_refused(text: str, said: str):
    with pytest.raises(InvalidInput, match=said):
        checked_practices(text)


def test_precision_follows_the_device_where_none_is_given():
    assert (checked_precision(None, "cpu"), checked_precision(None, "cuda")) == ("fp32", "bf16")
    with pytest.raises(InvalidInput, match="tf32 is a format of GPUs"):
        checked_precision("tf32", "cpu")
    with pytest.raises(InvalidInput, match="unknown precision 'fp8'"):
        checked_precision("fp8", "cuda")
