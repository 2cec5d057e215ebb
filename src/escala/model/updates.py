"""What update rules that look at whole matrices keep: Muon, Adafactor. Bytes and parameters, no seconds.

All other rules treat every weight alone: `states` and `steptime` count their bytes by the weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.model.columns import F64
from escala.model.matmuls import Shape, part_matmuls
from escala.model.network import Attention, Block, Experts, FeedForward, Learning, Part
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.shards import expert_replicas, expert_shard, sharing
from escala.model.stages import Slots, kinds
from escala.model.workload import OptimizerKind

ITERATIONS: Final = 5
"""Newton-Schulz iterations of a step. Source: torch.optim.Muon, DEFAULT_NS_STEPS; Jordan 2024 (Muon)."""
UPDATE_BYTES: Final = 2.0
"""A number of a matrix that is orthogonalised and sent: bf16. Source: torch.optim._muon, zeropower."""
OWNED_PARTS: Final = 2.0
"""What an owner keeps of its matrices while others travel: the pieces that came, the updates that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """`count` equal weights of rows x columns in one layer, of which tensor or expert ranks hold parts."""

    rows: float
    columns: float
    count: float = 1.0
    is_expert: bool = False
    is_split: bool = True

    @property
    def elements(self) -> float:
        """Weights in all of them."""
        return self.rows * self.columns * self.count

    @property
    def flop(self) -> float:
        """Newton-Schulz on one: 5 * (4 m² n + 2 m³), m the shorter side.

        X Xᵀ and B X are 2 m² n each, A A is 2 m³. Source: torch.optim._muon, _zeropower_via_newtonschulz.
        """
        m, n = sorted((self.rows, self.columns))
        return ITERATIONS * (4.0 * m * m * n + 2.0 * m**3)


def matrices(block: Block, hidden: int) -> list[Matrix]:
    """The weights with two sides of one layer, as PyTorch's modules hold them: query, key, value apart."""
    return [each for part in block.parts for each in _of_part(part, hidden) if min(each.rows, each.columns)]


def _of_part(part: Part, hidden: int) -> Iterator[Matrix]:
    if isinstance(part, Attention) and not (part.kv_rank or part.query_rank or part.index_heads):
        query, output = part.heads * (part.head_dim + part.gate_dim), part.heads * part.value_head_dim
        yield Matrix(rows=query, columns=hidden)
        for width in (part.head_dim, part.value_head_dim)[: part.key_value_maps]:
            yield Matrix(rows=part.kv_heads * width, columns=hidden)
        yield Matrix(rows=hidden, columns=output)
    elif isinstance(part, FeedForward):
        yield from _feed_forward(part.width, hidden, part.is_gated)
    elif isinstance(part, Experts):
        yield Matrix(rows=part.experts, columns=hidden, is_split=False)
        yield Matrix(rows=part.latent_dim, columns=hidden, count=2.0, is_split=False)
        for each in _feed_forward(part.width, part.latent_dim or hidden, part.is_gated):
            yield replace(each, count=each.count * part.experts, is_expert=True)
        yield from _feed_forward(part.shared_width, hidden, part.is_gated)
    else:
        whole = Shape.of(Plans.of(Plan()), 1.0)
        for product in part_matmuls(part, hidden, whole):
            rows, columns = float(product.outer[0]), float(product.inner[0])
            yield Matrix(rows=rows, columns=columns, count=float(product.count[0]))


def _feed_forward(width: float, hidden: int, is_gated: bool) -> Iterator[Matrix]:
    yield Matrix(rows=width, columns=hidden, count=2.0 if is_gated else 1.0)
    yield Matrix(rows=hidden, columns=width)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Weights in the matrices of the layers of one rank, before sharding: dense ones and in experts.

    `sides` are rows + columns of each, what a factored second moment keeps; `largest` is the largest whole
    matrix. Shapes: (rows,).
    """

    dense_parameters: F64
    expert_parameters: F64
    sides_parameters: F64
    largest_parameters: F64


def held(problem: Problem, plans: Plans, layer_counts: F64) -> Held:
    """Matrices of the layers of each kind on a rank of each row; tensor and expert ranks hold parts."""
    tp, spread = plans.tp.astype(np.float64), (plans.ep * plans.etp).astype(np.float64)
    dense = expert = sides = largest = np.zeros(len(plans))
    for kind, (stack, block) in enumerate(kinds(problem.workload.network)):
        count = layer_counts[:, kind] * (block.learning is Learning.TRAINED)
        for each in matrices(block, stack.hidden):
            over = spread if each.is_expert else np.where(each.is_split, tp, 1.0)
            mine, here = count * each.elements / over, each.count / (plans.ep if each.is_expert else 1)
            dense, expert = (dense, expert + mine) if each.is_expert else (dense + mine, expert)
            sides = sides + count * (each.rows + each.columns) * here
            largest = np.maximum(largest, np.where(count > 0, each.elements / each.count, 0.0))
    return Held(
        dense_parameters=dense,
        expert_parameters=expert,
        sides_parameters=sides,
        largest_parameters=largest,
    )


def _tables(problem: Problem, pairs: Slots) -> tuple[F64, F64]:
    """Weights of the tables of embedding and head, and rows + columns of each."""
    parameters = sides = np.zeros(len(pairs.row))
    for stack in problem.workload.network.stacks:
        found, own = [], stack.embedding
        if own is not None:
            tables = [(own.vocab, own.width or stack.hidden), (own.positions, stack.hidden)]
            tables += [(own.types, stack.hidden), (stack.hidden, own.patch_inputs)]
            found += [(pairs.has_embedding, *each) for each in tables if min(each)]
        if stack.head is not None and stack.head.outputs and not stack.head.is_tied:
            found.append((pairs.has_head, stack.head.outputs, stack.hidden))
        for has, rows, columns in found:
            parameters, sides = parameters + has * rows * columns, sides + has * (rows + columns)
    return parameters, sides


def sees_matrices(problem: Problem) -> bool:
    """Whether the update rule treats matrices otherwise than single weights; those of adapters are small."""
    by_matrix = problem.workload.optimizer.kind in (OptimizerKind.MUON, OptimizerKind.ADAFACTOR)
    return by_matrix and not problem.workload.is_frozen


def moment_bytes(problem: Problem, plans: Plans, pairs: Slots, own: F64) -> F64:
    """Muon: moment * (2 * weights - matrices); Adafactor: moment * (sides + vectors + first moments).

    `own` are the weights on one rank after sharding. The sides of a matrix are whole on every rank.
    Source: torch.optim.Muon (momentum_buffer) beside AdamW; Adafactor (row_var, col_var, variance).
    """
    optimizer, take = problem.workload.optimizer, plans.take(pairs.row)
    mine = held(problem, take, pairs.counts)
    over_dense, over_expert = (np.where(take.zero >= 1, over, 1.0) for over in sharing(plans, pairs.row))
    owned = mine.dense_parameters / over_dense + mine.expert_parameters / over_expert
    if optimizer.kind is OptimizerKind.MUON:
        return np.asarray(optimizer.state_bytes * (2.0 * own - owned), np.float64)
    tables, edges = _tables(problem, pairs)
    vectors = np.maximum(own - owned - tables / take.tp / over_dense, 0.0)
    kept = vectors + mine.sides_parameters + edges + optimizer.moments * own
    return np.asarray(optimizer.state_bytes * kept, np.float64)


def owners(plans: Plans) -> tuple[F64, F64]:
    """Ranks among which whole matrices are dealt, dense ones and experts: those that have them, or parts."""
    is_shared = plans.zero >= 1
    dense = np.where(is_shared, plans.shard, plans.dp * plans.cp) * plans.tp
    expert = np.where(is_shared, expert_shard(plans), expert_replicas(plans)) * plans.etp
    return dense.astype(np.float64), expert.astype(np.float64)


def orthogonal_bytes(problem: Problem, plans: Plans, pairs: Slots) -> F64:
    """Temporaries of Muon: 8 bytes * largest matrix, and what an owner holds of its matrices, 4 bytes each.

    X and its next value, the Gram matrix and its square, in bf16. Source: torch.optim._muon.
    """
    take = plans.take(pairs.row)
    mine, (dense, expert) = held(problem, take, pairs.counts), owners(take)
    whole = mine.dense_parameters * take.tp / dense, mine.expert_parameters * take.etp / expert
    is_dealt = [problem.workload.optimizer.owns_matrices & (ranks > 1) for ranks in (dense, expert)]
    kept = OWNED_PARTS * (whole[0] * is_dealt[0] + whole[1] * is_dealt[1])
    return np.asarray(UPDATE_BYTES * (4.0 * mine.largest_parameters + kept), np.float64)
