"""Counts of parameters, by hand and against torch.nn."""

from __future__ import annotations

import pytest
from torch import nn

from vramlab_course.formulas import bert, parameters, vgg16
from vramlab_course.programs.documents import VGG16, LinearWithOwnAdd, linear_net


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_by_hand() -> None:
    assert parameters.linear(1024, 2048) == 2_099_200  # 1024 x 2048 + 2048
    assert parameters.linear(1024, 2048, bias=False) == 2_097_152
    assert parameters.conv2d(3, 64, 3) == 1792  # 3 x 64 x 9 + 64
    assert parameters.conv2d(64, 64, 3, bias=False, groups=64) == 576  # 64 x 1 x 9
    assert parameters.batch_norm(64) == 128
    assert parameters.batch_norm_buffer_bytes(64) == 520  # 2 x 64 x 4 + 8
    assert parameters.embedding(30522, 768) == 23_440_896


@pytest.mark.parametrize(
    ("module", "predicted"),
    [
        (nn.Linear(7, 5), parameters.linear(7, 5)),
        (nn.Conv2d(6, 9, 5, groups=3), parameters.conv2d(6, 9, 5, groups=3)),
        (nn.BatchNorm2d(11), parameters.batch_norm(11)),
        (nn.LayerNorm(13), parameters.layer_norm(13)),
        (nn.Embedding(17, 3), parameters.embedding(17, 3)),
        (nn.MultiheadAttention(12, 4), parameters.multihead_attention(12)),
        (nn.MultiheadAttention(12, 3, bias=False), parameters.multihead_attention(12, bias=False)),
        (linear_net((4, 6, 2)), parameters.linear_chain((4, 6, 2))),
    ],
)
def test_as_torch_counts(module: nn.Module, predicted: int) -> None:
    assert count(module) == predicted


def test_batch_norm_buffers_as_torch_has_them() -> None:
    buffers = nn.BatchNorm2d(11).buffers()
    assert sum(b.numel() * b.element_size() for b in buffers) == (
        parameters.batch_norm_buffer_bytes(11)
    )


def test_linear_chain_shapes_are_the_models() -> None:
    model = linear_net((4, 6, 2))
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    assert shapes == parameters.linear_chain_shapes((4, 6, 2)) == [(6, 4), (6,), (2, 6), (2,)]
    assert [name for name, _ in model.named_children()] == ["net_a", "net_b"]
    own_add = linear_net((4, 6, 2), fused_bias=False)
    assert all(isinstance(layer, LinearWithOwnAdd) for layer in own_add)


def test_vgg16_is_torchvisions() -> None:
    model = VGG16()
    # torchvision's model card of vgg16: num_params 138357544.
    assert count(model) == vgg16.parameters() == 138_357_544
    assert [p.numel() for p in model.parameters()] == vgg16.parameter_counts()
    # Keys of torchvision's published state dict, first and last of each part.
    keys = list(model.state_dict())
    assert keys[0] == "features.0.weight"
    assert keys[25] == "features.28.bias"
    assert keys[-6:] == [
        f"classifier.{layer}.{name}" for layer in (0, 3, 6) for name in ("weight", "bias")
    ]


def test_vgg16_outputs_by_hand() -> None:
    # 3 x 224 x 224 = 150528; convolutions 2 x 3211264 + 2 x 1605632 + 3 x 802816 + 3 x 401408
    # + 3 x 100352; poolings 802816 + 401408 + 200704 + 100352 + 25088; classifier 9192.
    elements = 150_528 + 6_422_528 + 3_211_264 + 2_408_448 + 1_204_224 + 301_056
    elements += 802_816 + 401_408 + 200_704 + 100_352 + 25_088 + 9192
    assert elements == 15_237_608
    assert vgg16.layer_outputs_bytes() == 4 * elements
    assert vgg16.layer_outputs_bytes(batch=3) == 3 * 4 * elements


def test_vgg16_forward_by_hand() -> None:
    # Outputs without the image, 15087080 x 4; places of maxima 1530368 x 8; average pooling
    # 25088 x 4; two dropouts, each 4096 x 4 and a mask of 4096.
    kept_bytes = 60_348_320 + 12_242_944 + 100_352 + 2 * (16_384 + 4096)
    assert sum(vgg16.forward_requests_bytes()) == kept_bytes == 72_732_576
    assert sum(vgg16.forward_requests_bytes(workspace_bytes=512)) == kept_bytes + 512
    # Given back: 4000 + 2 x (2 x 16384 + 4096); gradients: 16384 + 100352.
    assert vgg16.peak_per_image_bytes() == kept_bytes - 77_728 + 116_736


def test_bert_base_has_the_parameters_of_its_paper() -> None:
    sizes = bert.Bert()
    elements = 0
    for shape in sizes.parameter_shapes():
        product = 1
        for length in shape:
            product *= length
        elements += product
    # Embeddings (30522 + 512 + 2) x 768 + 1536; a layer 4 x 590592 + 1536 + 2362368 + 2360064
    # + 1536... = 7087872; pooler 590592: bert-base-uncased's 109,482,240 ("110M").
    assert elements == 23_837_184 + 12 * 7_087_872 + 590_592 == 109_482_240


def test_bert_shapes_are_the_models() -> None:
    from transformers import BertConfig, BertModel

    small = BertConfig(
        vocab_size=90,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=16,
    )
    sizes = bert.Bert(90, 16, 2, 12, 2, 3, 20)
    shapes = [tuple(parameter.shape) for parameter in BertModel(small).parameters()]
    assert sizes.parameter_shapes() == shapes
