"""All plans, the cheapest first, by sorting; plain Python, with a dataclass."""

import itertools
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Plan:
    zero: int
    micro_batch: int
    checkpointing: str

    @property
    def price(self):
        return (self.checkpointing == "full", self.zero, -self.micro_batch)


def peak(plan, layers, states_bytes, layers_bytes, inputs_bytes, loss_bytes, gathered_bytes, ranks):
    lasting = states_bytes // ranks + gathered_bytes if plan.zero else states_bytes
    kept = layers_bytes + loss_bytes
    if plan.checkpointing == "full":
        kept = inputs_bytes + max(layers_bytes // layers, loss_bytes)
    return lasting + plan.micro_batch * kept


def choose(share, limit_bytes, **facts):
    sizes = [size for size in range(1, share + 1) if share % size == 0]
    plans = itertools.starmap(Plan, itertools.product((0, 3), sizes, ("none", "full")))
    fitting = [plan for plan in plans if peak(plan, **facts) <= 0.95 * limit_bytes]
    return asdict(min(fitting, key=lambda plan: plan.price))
