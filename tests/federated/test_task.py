"""Tasks: digits, a person's function, tables and folders; wrong ones are one clear line."""

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.task import Task, held_out, task_of
from federated.populations import plain_task


def test_a_fifth_of_each_label_is_held_out_whatever_the_seed():
    labels = np.repeat(np.arange(4), 25)

    chosen = held_out(labels)

    assert np.bincount(labels[chosen]).tolist() == [5, 5, 5, 5]
    assert np.array_equal(chosen, held_out(labels))


def test_wrong_tasks_say_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_task.py").write_text("def made():\n    return 3\n")

    with pytest.raises(InvalidInput, match="neither digits nor a file"):
        task_of("didgits")
    with pytest.raises(InvalidInput, match="returned int"):
        task_of("odd_task:made")
    with pytest.raises(InvalidInput, match="choose mlp or cnn"):
        task_of("digits", net="rnn")
    with pytest.raises(InvalidInput, match="10 inputs, 9 labels"):
        Task(
            name="uneven",
            module=lambda: None,
            inputs=np.zeros((10, 1)),
            labels=np.zeros(9, np.int64),
            test_inputs=np.zeros((1, 1)),
            test_labels=np.zeros(1, np.int64),
        )
    with pytest.raises(InvalidInput, match="whole numbers from 0"):
        plain_task(np.array([-1, 0]))


@pytest.mark.optional
@pytest.mark.parametrize(("net", "shape", "weights"), [("mlp", (64,), 17_226), ("cnn", (1, 8, 8), 38_282)])
def test_digits_have_their_networks(net, shape, weights):
    task = task_of("digits", net=net)

    assert (len(task), len(task.test_labels), task.classes) == (1438, 359, 10)
    assert task.inputs.shape[1:] == shape
    assert sum(each.numel() for each in task.module().parameters()) == weights


@pytest.mark.optional
def test_a_table_of_numbers_with_users(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "mass": [1.0, 3.0] * 10,
        "place": [[0.0, 1.0], [2.0, 1.0]] * 10,
        "kind": ["good", "bad"] * 10,
        "who": [7, 7, 9, 9] * 5,
    }
    parquet.write_table(arrow.table(columns), tmp_path / "parts.parquet")

    task = task_of(str(tmp_path / "parts.parquet"), label="kind", user="who")

    # centred and scaled: 1 and 3 become -1 and 1; the constant column becomes 0
    assert np.unique(task.inputs, axis=0).tolist() == [[-1, -1, 0], [1, 1, 0]]
    assert np.array_equal(task.labels, (task.inputs[:, 0] < 0).astype(np.int64))
    assert set(task.users) == {0, 1}
    assert len(task) + len(task.test_labels) == 20
    with pytest.raises(InvalidInput, match="unknown column 'label'"):
        task_of(str(tmp_path / "parts.parquet"))


@pytest.mark.optional
def test_images_of_a_folder_and_of_a_table_are_the_same(tmp_path):
    image = pytest.importorskip("PIL.Image")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = []
    for label, level in (("dark", 20), ("light", 200)):
        (tmp_path / "set" / label).mkdir(parents=True)
        for number in range(5):
            file = tmp_path / "set" / label / f"{number}.png"
            image.new("RGB", (40, 30), (level, number, 0)).save(file)
            rows.append({"image": file.read_bytes(), "label": label})
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "set.parquet")

    folder, table = task_of(str(tmp_path / "set")), task_of(str(tmp_path / "set.parquet"))

    assert folder.inputs.shape == (8, 3, 32, 32)
    assert np.array_equal(folder.inputs, table.inputs)
    assert np.array_equal(folder.labels, table.labels)
    (tmp_path / "set" / "dark" / "0.png").write_bytes(b"no image")
    with pytest.raises(InvalidInput, match="is no image"):
        task_of(str(tmp_path / "set"))
