"""What cuDNN takes for a recurrent network, of those for which it is known: LSTMs and GRUs.

With T steps, a batch of B, H numbers in a hidden state, L layers, D directions, e bytes of a number
and u = T B H D e:

    LSTM  reserve    (6 L - 1) u: gates, cells and outputs of all layers, the last output excepted
    GRU   reserve    (7 L - 1) u
    both  + 8 L D B H of states, and 256 B
    workspace        one u more than the reserve in float32 and two in 16 bits, one less where
                     nothing is kept for a backward pass; + 10 L D B H e + 512 B

An LSTM of L = 2 and D = 1 is equal to the byte to the H200's recording in three dtypes (cuDNN 9.19,
zoo/lstm-*). For L = 4, https://github.com/pytorch/pytorch/issues/2895 has printed reserves of 23 u
and 27 u (cuDNN 7). How workspaces grow with layers, and those of GRUs, are assumptions.

The reference of cudnnGetRNNTempSpaceSizes says that T and B alone count, not how long each sequence
is. vramlab/native/csrc/cudnn_rnn.c has the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vramlab.units import KIB

_PARTS = {"lstm": 6, "gru": 7}


@dataclass(frozen=True)
class RecurrentNetwork:
    """A network, and what it is given.

    Attributes:
        kind: of its cells.
        hidden_size: numbers in a hidden state (H).
        layers: how many (L).
        directions: 1, or 2 if it reads both ways (D).
        itemsize: bytes of a number (e).
    """

    kind: Literal["lstm", "gru"]
    hidden_size: int
    layers: int
    directions: int
    itemsize: int

    def reserve_bytes(self, steps: int, batch: int) -> int:
        """Size what is kept from the forward pass for the backward pass."""
        state = self.directions * batch * self.hidden_size
        unit_bytes = steps * state * self.itemsize
        states_bytes = 8 * self.layers * state + 256
        return (_PARTS[self.kind] * self.layers - 1) * unit_bytes + states_bytes

    def workspace_bytes(self, steps: int, batch: int, *, training: bool) -> int:
        """Size what an op takes while it runs."""
        state = self.directions * batch * self.hidden_size
        units = _PARTS[self.kind] * self.layers + (self.itemsize == 2) - (not training)
        return (units * steps + 10 * self.layers) * state * self.itemsize + 512


def dropout_state_bytes(multiprocessors: int) -> int:
    """Size the random numbers for dropout between layers: 6,488,064 B on an H200, which has 132.

    Source: the H200's recording; that it is so on other GPUs is an assumption.
    """
    return multiprocessors * 48 * KIB
