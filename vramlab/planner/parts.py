"""What one rank has of a transformer that is cut: by matrices, by layers."""

from __future__ import annotations

from dataclasses import replace

from vramlab.errors import VramlabError
from vramlab.programs.transformer_memory import Sizes


class UnevenParts(VramlabError, ValueError):
    """A model cannot be cut into equal parts; the message says what does not divide what."""


def one_rank_of(sizes: Sizes, tensor: int = 1, pipeline: int = 1, stage: int = 0) -> Sizes:
    """Give the sizes of what a rank of a stage has.

    A rank that shares matrices has a transformer of the same width with fewer heads, a narrower
    feed-forward layer, and a part of the vocabulary.

    Args:
        sizes: of the whole model.
        tensor: how many ranks share each matrix.
        pipeline: how many stages there are.
        stage: which one: 0 is the first.

    Raises:
        UnevenParts: what has to be cut cannot be cut evenly.
    """
    uneven = [
        f"{count} {name}"
        for name, count in (
            ("heads", sizes.heads),
            ("heads of keys and values", sizes.kv),
            ("numbers inside the feed-forward layer", sizes.inner),
            ("words of the vocabulary", sizes.vocabulary),
        )
        if count % tensor
    ]
    if uneven:
        raise UnevenParts(f"{tensor} tensor-parallel ranks cannot share {', '.join(uneven)} evenly")
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
    """Give how many layers each stage has; earlier ones have one more if there is a rest.

    Raises:
        UnevenParts: there are more stages than layers.
    """
    if pipeline > layers:
        raise UnevenParts(f"{layers} layers cannot make {pipeline} stages: there are too few")
    each, more = divmod(layers, pipeline)
    return [each + (stage < more) for stage in range(pipeline)]
