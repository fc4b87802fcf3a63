"""The models of the zoo, each with the batch that it is given and the loss that it is trained on.

Nothing is downloaded: weights are random, as memory does not depend on them. Text models come from
transformers, and so do the vision models that are too long to write out.

Letters of shapes: B batch, L tokens, C channels, H and W height and width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vramlab.programs.vgg16 import VGG16

Batch = dict[str, Tensor]
"""Tensors by the name of the model's argument; `labels` is what the loss needs besides."""

CLASSES = 1000


@dataclass(frozen=True)
class Subject:
    """A model of the zoo, and how it is used."""

    build: Callable[[str | None], nn.Module]
    """Makes it, given transformers' `attn_implementation` ("eager", "sdpa", None: no attention)."""
    make_batch: Callable[[int, int], Batch]
    """(B, L) to a batch on the host."""
    built_on_gpu: bool = False
    """Whether its parameters are made on the GPU: a large model takes long to fill on the host."""
    family: str = "text"
    """Which of the recording's trace files it goes to: 'vision' or 'text'."""


class Network(nn.Module):
    """A module of (B, ...) to scores (B, classes) with transformers' way of being called.

    Args:
        layers: applied one after the other; checkpointing works layer by layer.
    """

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers
        self.checkpoint_kwargs: Mapping[str, Any] | None = None

    def activation_checkpointing_enable(self, checkpoint_kwargs: Mapping[str, Any]) -> None:
        """Compute each layer again in the backward pass."""
        self.checkpoint_kwargs = checkpoint_kwargs
        self.checkpointing = True

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Compute scores, and the loss if there are labels (B,)."""
        hidden = inputs
        for layer in self.layers:
            if self.checkpoint_kwargs is not None:
                hidden = checkpoint(layer, hidden, **self.checkpoint_kwargs)
            else:
                hidden = layer(hidden)
        if labels is None:
            return {"logits": hidden}
        return {"loss": functional.cross_entropy(hidden, labels)}


class LanguageLSTM(nn.Module):
    """Embedding, two LSTM layers of 1024, and a score for each of 10,000 words."""

    vocabulary = 10_000
    width = 1024

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.vocabulary, self.width)
        self.lstm = nn.LSTM(self.width, self.width, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(self.width, self.vocabulary)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Compute scores (B, L, words), and the loss if there are labels (B, L)."""
        hidden, _ = self.lstm(self.embedding(input_ids))
        scores = self.head(hidden)
        if labels is None:
            return {"logits": scores}
        return {"loss": functional.cross_entropy(scores.flatten(0, 1), labels.flatten())}


def _mlp(width: int, depth: int) -> Callable[[str | None], nn.Module]:
    def build(_: str | None) -> nn.Module:
        layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        return Network(nn.Sequential(*layers, nn.Linear(width, CLASSES)))

    return build


def _vectors(width: int) -> Callable[[int, int], Batch]:
    def make(batch: int, _: int) -> Batch:
        return {"inputs": torch.randn(batch, width), "labels": torch.randint(CLASSES, (batch,))}

    return make


def _images(argument: str = "pixel_values") -> Callable[[int, int], Batch]:
    def make(batch: int, _: int) -> Batch:
        images_BCHW = torch.randn(batch, 3, 224, 224)  # noqa: N806  the letters of the shape
        return {argument: images_BCHW, "labels": torch.randint(CLASSES, (batch,))}

    return make


def _tokens(vocabulary: int) -> Callable[[int, int], Batch]:
    """Every token is one to be predicted."""

    def make(batch: int, length: int) -> Batch:
        tokens_BL = torch.randint(vocabulary, (batch, length))  # noqa: N806
        return {"input_ids": tokens_BL, "labels": tokens_BL.clone()}

    return make


def _sentences(vocabulary: int, labels: int) -> Callable[[int, int], Batch]:
    """Each sentence has one label."""

    def make(batch: int, length: int) -> Batch:
        return {
            "input_ids": torch.randint(vocabulary, (batch, length)),
            "labels": torch.randint(labels, (batch,)),
        }

    return make


def _transformers(model: str, config: str, **settings: Any) -> Callable[[str | None], nn.Module]:
    """Return a model of transformers, by the names of its class and its configuration's."""

    def build(attention: str | None) -> nn.Module:
        import transformers

        chosen = {} if attention is None else {"attn_implementation": attention}
        made = getattr(transformers, model)(getattr(transformers, config)(**settings, **chosen))
        assert isinstance(made, nn.Module)
        return made

    return build


_BERT_WORDS, _GPT2_WORDS, _T5_WORDS = 30_522, 50_257, 32_128
_LLAMA_WORDS, _QWEN_WORDS = 128_256, 151_936

SUBJECTS: Mapping[str, Subject] = {
    "mlp-1024x4": Subject(_mlp(1024, 4), _vectors(1024), family="vision"),
    "mlp-4096x8": Subject(_mlp(4096, 8), _vectors(4096), family="vision"),
    "vgg16": Subject(lambda _: Network(nn.Sequential(VGG16())), _images("inputs"), family="vision"),
    "resnet50": Subject(
        _transformers("ResNetForImageClassification", "ResNetConfig", num_labels=CLASSES),
        _images(),
        family="vision",
    ),
    "convnext-tiny": Subject(
        _transformers("ConvNextForImageClassification", "ConvNextConfig", num_labels=CLASSES),
        _images(),
        family="vision",
    ),
    "vit-base": Subject(
        _transformers("ViTForImageClassification", "ViTConfig", num_labels=CLASSES),
        _images(),
        family="vision",
    ),
    "lstm": Subject(lambda _: LanguageLSTM(), _tokens(LanguageLSTM.vocabulary)),
    "bert-base": Subject(_transformers("BertForMaskedLM", "BertConfig"), _tokens(_BERT_WORDS)),
    "bert-large": Subject(
        _transformers(
            "BertForSequenceClassification",
            "BertConfig",
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            num_labels=2,
        ),
        _sentences(_BERT_WORDS, 2),
    ),
    "gpt2": Subject(_transformers("GPT2LMHeadModel", "GPT2Config"), _tokens(_GPT2_WORDS)),
    "gpt2-xl": Subject(
        _transformers("GPT2LMHeadModel", "GPT2Config", n_embd=1600, n_layer=48, n_head=25),
        _tokens(_GPT2_WORDS),
        built_on_gpu=True,
    ),
    "t5-small": Subject(
        _transformers("T5ForConditionalGeneration", "T5Config", decoder_start_token_id=0),
        _tokens(_T5_WORDS),
    ),
    "t5-base": Subject(
        _transformers(
            "T5ForConditionalGeneration",
            "T5Config",
            d_model=768,
            d_ff=3072,
            num_layers=12,
            num_heads=12,
            decoder_start_token_id=0,
        ),
        _tokens(_T5_WORDS),
    ),
    # The sizes of Llama 3.2 1B.
    "llama-1b": Subject(
        _transformers(
            "LlamaForCausalLM",
            "LlamaConfig",
            vocab_size=_LLAMA_WORDS,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            tie_word_embeddings=True,
        ),
        _tokens(_LLAMA_WORDS),
        built_on_gpu=True,
    ),
    # The sizes of Qwen3 0.6B.
    "qwen-0.6b": Subject(
        _transformers(
            "Qwen3ForCausalLM",
            "Qwen3Config",
            vocab_size=_QWEN_WORDS,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
        ),
        _tokens(_QWEN_WORDS),
        built_on_gpu=True,
    ),
}
