"""Seconds that orthogonalising matrices (Muon) adds to an optimizer step: products, whole matrices sent."""

import numpy as np

from escala.model.columns import F64
from escala.model.efficiency import linear_flop_per_s, matmul_s, pass_s
from escala.model.matmuls import Matmul
from escala.model.network import Learning
from escala.model.plan import Plans, Precision
from escala.model.problem import Problem
from escala.model.shards import sharing
from escala.model.slowest import Rank
from escala.model.stages import kinds
from escala.model.traffic import layer_wires
from escala.model.updates import ITERATIONS, UPDATE_BYTES, Matrix, held, matrices, owners


def muon_s(problem: Problem, plans: Plans, rank: Rank, updated: F64) -> F64:
    """What Muon adds to passes with one moment: AdamW's second moments, products, whole matrices sent."""
    mine, take = held(problem, plans, rank.layer_counts), np.arange(len(plans))
    over_dense, over_expert = (np.where(plans.zero >= 1, over, 1.0) for over in sharing(plans, take))
    others = updated - mine.dense_parameters / over_dense - mine.expert_parameters / over_expert
    second_bytes = 2.0 * problem.workload.optimizer.state_bytes * np.maximum(others, 0.0)
    products_s = orthogonal_s(problem, plans, rank.layer_counts)
    return pass_s(problem, second_bytes) + products_s + orthogonal_sync_s(problem, plans, rank)


def orthogonal_s(problem: Problem, plans: Plans, layer_counts: F64) -> F64:
    """Newton-Schulz on the matrices of a rank: 15 products in bf16 each, for all of them or those it owns.

    No owner has less than the largest matrix. `layer_counts` are layers of each kind. Shape (n,).
    Source: torch.optim._muon; products as in `efficiency.matmul_s`.
    """
    dense = expert = largest = np.zeros(len(plans))
    for kind, (stack, block) in enumerate(kinds(problem.workload.network)):
        count = layer_counts[:, kind] * (block.learning is Learning.TRAINED)
        for each in matrices(block, stack.hidden):
            one_s = _one_s(problem, each, len(plans))
            all_s = count * one_s * each.count
            dense, expert = (dense, expert + all_s / plans.ep) if each.is_expert else (dense + all_s, expert)
            largest = np.maximum(largest, np.where(count > 0, one_s, 0.0))
    if not problem.workload.optimizer.owns_matrices:
        return dense + expert
    of_dense, of_expert = owners(plans)
    return np.maximum(dense / of_dense + expert / of_expert, largest)


def _one_s(problem: Problem, matrix: Matrix, rows: int) -> F64:
    one = np.ones(rows)
    m, n = (one * each for each in sorted((matrix.rows, matrix.columns)))
    speed = linear_flop_per_s(problem, np.full(rows, int(Precision.BF16)), is_high=True)
    total = np.zeros(rows)
    for a, b, c in ((m, n, m), (m, m, m), (m, m, n)):
        product = Matmul(rows=a, inner=b, outer=c, count=one)
        total = total + matmul_s(problem, product, speed, UPDATE_BYTES * one)
    return ITERATIONS * total


def orthogonal_sync_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Whole matrices for Muon: pieces to the owner and back, or all pieces to all, in bf16; nothing hides it.

    Where every replica has all matrices owners send their updates to all instead. Tensor ranks exchange the
    parts of each matrix alike. Source: `collectives`; Jordan 2024 (Muon), distributed version.
    """
    mine, owns = held(problem, plans, rank.layer_counts), problem.workload.optimizer.owns_matrices
    wires, tensor = rank.wires, layer_wires(problem, plans).tensor
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    is_shared = plans.zero >= 1
    total = np.zeros(len(plans))
    for parameters, over, inside, copies in (
        (mine.dense_parameters, over_dense, wires.sharding, wires.replicas),
        (mine.expert_parameters, over_expert, wires.expert_sharding, wires.expert_replicas),
    ):
        payload = UPDATE_BYTES * parameters
        dealt_s = 2.0 * inside.exchange_s(payload / over) if owns else inside.gather_s(payload)
        alike_s = copies.gather_s(payload) if owns else np.zeros(len(plans))
        sent_s = np.where(is_shared, dealt_s, alike_s)
        total = total + np.where(parameters > 0, sent_s, 0.0)
    parts = UPDATE_BYTES * mine.dense_parameters
    exchanged_s = 2.0 * tensor.exchange_s(parts / np.where(is_shared, over_dense, 1.0))
    tensor_s = exchanged_s if owns else tensor.gather_s(parts * plans.tp)
    return np.asarray(total + np.where(plans.tp > 1, tensor_s, 0.0), np.float64)
