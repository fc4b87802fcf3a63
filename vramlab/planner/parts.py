"""The part of a transformer that one tensor-parallel or pipeline-parallel rank has."""

from __future__ import annotations

from dataclasses import replace

from vramlab.errors import VramlabError
from vramlab.programs.transformer_memory import Sizes


class UnevenParts(VramlabError, ValueError):
    """A model cannot be divided evenly; the message says which size does not divide."""


def one_rank_of(sizes: Sizes, tensor: int = 1, pipeline: int = 1, stage: int = 0) -> Sizes:
    """Return the sizes of one rank's part of a model.

    A tensor-parallel rank has a transformer of the same hidden size with fewer heads, a smaller
    feed-forward layer, and a part of the vocabulary.

    Args:
        sizes: Sizes of the whole model.
        tensor: Number of tensor-parallel ranks.
        pipeline: Number of pipeline stages.
        stage: The rank's stage, from 0.

    Raises:
        UnevenParts: The model cannot be divided evenly.
    """
    uneven = [
        f"{count} {name}"
        for name, count in (
            ("attention heads", sizes.heads),
            ("key and value heads", sizes.kv),
            ("hidden units of the feed-forward layer", sizes.inner),
            ("vocabulary entries", sizes.vocabulary),
        )
        if count % tensor
    ]
    if uneven:
        raise UnevenParts(
            f"{tensor} tensor-parallel ranks do not divide {', '.join(uneven)}: use a number of "
            "ranks that does, or pad these sizes"
        )
    return replace(
        sizes,
        vocabulary=sizes.vocabulary // tensor,
        layers=layers_of_stages(sizes.layers, pipeline)[stage],
        heads=sizes.heads // tensor,
        kv_heads=sizes.kv // tensor,
        feed_forward=sizes.inner // tensor,
        head_dim=sizes.head_size,
        embeds=stage == 0,
        predicts=stage == pipeline - 1,
    )


def layers_of_stages(layers: int, pipeline: int) -> list[int]:
    """Return the number of layers of each stage; a remainder goes to the first stages.

    Raises:
        UnevenParts: There are more stages than layers.
    """
    if pipeline > layers:
        raise UnevenParts(
            f"{layers} layers are too few for {pipeline} pipeline stages: use at most as many "
            "stages as layers"
        )
    layers_per_stage, more = divmod(layers, pipeline)
    return [layers_per_stage + (stage < more) for stage in range(pipeline)]
