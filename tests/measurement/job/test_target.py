import pytest

from escala.errors import InvalidInput
from escala.measurement.job.fault import UserFault, user_code
from escala.measurement.job.target import imported, names_function


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("train:make", True),
        ("package.module:make", True),
        ("folder/train.py:make", True),
        ("gpt2", False),
        ("hf:owner", False),
        ("trace.json", False),
        ("C:\\traces\\rank0.json", False),
        (":make", False),
    ],
)
def test_a_function_is_named_by_module_colon_function(target: str, answer: bool):
    assert names_function(target) is answer


def test_a_module_of_the_current_folder_is_found(write):
    name = write("def make():\n    return 42\n")

    assert imported(f"{name}:make")() == 42
    assert imported(f"{name}.py:make")() == 42


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("mak", r"unknown function 'mak': did you mean make\? .* has make, wide"),
        ("SIZE", "is no function but int"),
        ("wide", r"needs arguments \(width\); name a function that needs none"),
    ],
)
def test_what_is_no_function_without_arguments_is_refused(write, function: str, said: str):
    name = write("SIZE = 3\ndef make(): ...\ndef wide(width): ...\n")

    with pytest.raises(InvalidInput, match=said):
        imported(f"{name}:{function}")


def test_a_missing_module_is_told_from_a_module_that_misses_another(write):
    name = write("import surely_not_installed\n")

    with pytest.raises(InvalidInput, match="there is no module 'surely_missing' here"):
        imported("surely_missing.deep:make")
    with pytest.raises(UserFault, match=rf"raised ModuleNotFoundError: .*surely_not.* \({name}\.py:1"):
        imported(f"{name}:make")
    with pytest.raises(InvalidInput, match=r"nowhere\.py does not exist"):
        imported("nowhere.py:make")


def test_an_error_names_the_last_line_of_the_person(write):
    name = write("import json\n\ndef make():\n    return json.loads('{')\n")

    with pytest.raises(UserFault) as raised, user_code("the job"):
        imported(f"{name}:make")()

    said = str(raised.value)
    assert said.startswith("the job raised JSONDecodeError: Expecting property name")
    assert f"({name}.py:4, in make: `return json.loads('{{')`;" in said
    assert "json/decoder.py" in said  # where it was raised, in a library
    assert "\n" not in said


def test_an_error_of_syntax_names_its_own_file_and_line(write):
    wrong = write("def make():\n    return (1\n\nx = 2 2\n")
    name = write(f"import {wrong}\n")

    with pytest.raises(UserFault) as alone:
        imported(f"{wrong}:make")
    with pytest.raises(UserFault, match=rf"\({name}\.py:1, in <module>: `import {wrong}`; {wrong}\.py:2: "):
        imported(f"{name}:make")

    assert str(alone.value).endswith(f"raised SyntaxError: '(' was never closed ({wrong}.py:2: `return (1`)")


def test_an_exit_is_told_and_prints_go_to_stderr(write, capsys: pytest.CaptureFixture[str]):
    name = write("import sys\n\ndef make():\n    print('hello')\n    sys.exit('no data')\n")

    with pytest.raises(UserFault, match=r"raised SystemExit: no data \(own_.*py:5, in make"), user_code("it"):
        imported(f"{name}:make")()
    assert capsys.readouterr() == ("", "hello\n")
