"""Shell scripts: words as bash makes them, each at its place; what only a shell knows stays open."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from escala.foreign.places import Place
from escala.foreign.shelltext import Word, flags, read_shell

SCRIPT = """#!/bin/bash
#SBATCH --nodes=4
GPUS=8; NNODES=${SLURM_NNODES:-4}
WORLD=$(($GPUS * $NNODES))
MODEL=(
    --num-layers 96   # many
    --hidden-size 12288
)
OTHER="
    --seq-length 2048 \\
    --micro-batch-size 1
"
export NCCL_DEBUG=INFO
OMP_NUM_THREADS=1 torchrun --nproc_per_node $GPUS --nnodes=$NNODES --node_rank $SLURM_NODEID train.py \\
  "${MODEL[@]}" $OTHER --global-batch-size $WORLD --lr -5e-5 && echo done
"""


def test_arrays_defaults_sums_and_texts_are_filled_in_at_their_own_lines() -> None:
    command = read_shell(SCRIPT, "x.sh").commands[0]

    found = {
        name: ([v.text for v in values], values[0].place.line)
        for name, (_, values) in flags(command.words).items()
    }

    assert found == {
        "nproc-per-node": (["8"], 3),
        "nnodes": (["4"], 14),
        "node-rank": (["$SLURM_NODEID", "train.py"], 14),
        "num-layers": (["96"], 6),
        "hidden-size": (["12288"], 7),
        "seq-length": (["2048"], 10),
        "micro-batch-size": (["1"], 11),
        "global-batch-size": (["32"], 4),
        "lr": (["-5e-5"], 15),
    }
    assert command.variables["OMP_NUM_THREADS"].text == "1"
    assert command.variables["NCCL_DEBUG"].text == "INFO"


def test_what_only_a_shell_knows_is_open() -> None:
    words = read_shell("a=$(hostname)\nrun $a $UNSET `date` plain", "x.sh").commands[0].words

    assert [word.is_open for word in words] == [False, True, True, True, False]


@given(st.lists(st.text("ab '\"$\\-=#*;", max_size=6), min_size=1, max_size=5))
def test_quoted_words_are_those_of_bash(words: list[str]) -> None:
    import shlex

    line = "run " + " ".join(shlex.quote(word) for word in words)

    found = read_shell(line, "x.sh").commands[0].words

    assert [word.text for word in found[1:]] == words


def test_words_are_those_of_bash() -> None:
    told = subprocess.run(
        ["bash", "-c", SCRIPT.replace("torchrun", "printf '%s\\n' torchrun").replace("&& echo done", "")],
        capture_output=True,
        text=True,
        check=True,
        env={"SLURM_NODEID": "$SLURM_NODEID", "PATH": "/usr/bin:/bin"},
    ).stdout.split("\n")

    assert [word.text for word in read_shell(SCRIPT, "x.sh").commands[0].words] == told[:-1]


def test_doubling_variables_end() -> None:
    lines = ["x=aaaaaaaaaa", *(["x=$x$x"] * 60), "run $x"]

    [command] = read_shell("\n".join(lines), "x.sh").commands

    assert sum(len(word.text) for word in command.words) < 3_000_000


@given(st.text("ab$(){}[]'\"\\\n;|&<>#=@-: `", max_size=120))
def test_any_text_is_read(text: str) -> None:
    read_shell(text, "x.sh")


def test_variables_that_are_given_are_known_and_exported() -> None:
    nodes = Word(text="4", place=Place(file="x.sh", line=1))

    script = read_shell("torchrun --nnodes=$N train.py", "x.sh", given={"N": nodes})

    assert script.commands[0].words[1].text == "--nnodes=4"
    assert script.commands[0].variables == {"N": nodes}


def test_where_output_goes_is_no_word_of_the_command() -> None:
    text = (
        "torchrun a.py --bf16 2>&1 | tee log\nrun --fast >> 'the log' 2>/dev/null\nrun &> x --late\nrun <<< y"
    )

    words = [[word.text for word in command.words] for command in read_shell(text, "x.sh").commands]

    assert words == [
        ["torchrun", "a.py", "--bf16"],
        ["tee", "log"],
        ["run", "--fast"],
        ["run", "--late"],
        ["run"],
    ]


def test_what_a_variable_has_that_is_not_set_is_told_apart() -> None:
    text = 'N=${N:-2}\nrun --a=${A:-1} "${B:-b}" $N ${C} c\n'

    words = read_shell(text, "x.sh").commands[0].words

    assert [(word.text, word.is_default) for word in words] == [
        ("run", False),
        ("--a=1", True),
        ("b", True),
        ("2", True),
        ("${C}", False),
        ("c", False),
    ]
