"""Where custom models come from: a function in a file or a module, or a configuration.

Each gives a model to plan for:

    custom_model("net.py:build", inputs=["float32[B,3,224,224]"], target="int64[B]",
                 loss="cross_entropy")
    transformers_model(Path("Qwen3-0.6B/config.json"))
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from vramlab.errors import did_you_mean
from vramlab.planner.custom import CustomModel, Input, UnusableModel
from vramlab.planner.models import load_config

TEXT = ("input_ids=int64[B,S]", "labels=int64[B,S]")
TEXT_CLASS = ("input_ids=int64[B,S]", "labels=int64[B]")

_CALLED_WITH = {
    "CausalLM": TEXT,
    "LMHeadModel": TEXT,
    "MaskedLM": TEXT,
    "TokenClassification": TEXT,
    "SequenceClassification": TEXT_CLASS,
    "ConditionalGeneration": TEXT,
    "ImageClassification": (
        "pixel_values=float32[B,{channels},{height},{width}]",
        "labels=int64[B]",
    ),
}
"""What a class of transformers is called with in training, by how its name ends."""

_USUAL_CLASSES = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
)
"""Where transformers says which class of a model type is trained, the first that has it."""


def custom_model(
    text: str,
    inputs: Sequence[str],
    target: str | None = None,
    loss: str | None = None,
) -> CustomModel:
    """Find a function that makes a model, and say how the model is called.

    Args:
        text: "file.py:function" or "package.module:function"; it takes no arguments.
        inputs: what the model is called with, each as `Input` reads it.
        target: what the loss is compared with.
        loss: the name of a function in torch.nn.functional, or one in a file or a module, called
            with output and target; if None, the model returns its loss.

    Raises:
        UnusableModel: there is no such function, or an input does not read like one.
    """
    if not inputs:
        raise UnusableModel(
            f"missing --input: describe each input of {text}, for example --input "
            '"float32[B,3,224,224]" or --input "input_ids=int64[B,S]"'
        )
    given = tuple(map(Input, inputs))
    compared = None if target is None else Input(target)
    if compared is not None and loss is None:
        raise UnusableModel(f"--target {target} needs --loss: name a loss function")
    return CustomModel(
        text, load_function(text), given, compared, None if loss is None else _load_loss(loss)
    )


def load_function(text: str) -> Callable[..., Any]:
    """Import a function by "file.py:function" or "package.module:function".

    Raises:
        UnusableModel: it cannot be imported, or is not there, or is none.
    """
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise UnusableModel(
            f"invalid function {text!r}: write file.py:function or package.module:function"
        )
    try:
        with _torchvision_loads():
            module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    except UnusableModel:
        raise
    except Exception as error:
        raise UnusableModel(f"failed to import {where}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = ", ".join(key for key, value in vars(module).items() if _is_own(module, value))
        raise UnusableModel(f"{where} has no function {name!r}; its functions: {own or 'none'}")
    found: Callable[..., Any] = function
    return found


def _torchvision_loads() -> AbstractContextManager[None]:
    """Let torchvision be imported, whose usual wheels want PyTorch's CUDA build; imports torch."""
    from vramlab.gpu.stand_ins.libraries import torchvision

    return torchvision.loading()


def _is_own(module: Any, value: Any) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _load_module(name: str) -> Any:
    if "" not in sys.path:  # as `python -m` finds modules of the current folder
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise UnusableModel(f"can't open file {str(path)!r}: no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as `python file.py` finds what lies beside it
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


def _load_loss(text: str) -> Callable[..., Any]:
    if ":" in text:
        return load_function(text)
    from torch.nn import functional

    found = getattr(functional, text, None)
    if not callable(found):
        raise UnusableModel(
            f"torch.nn.functional has no {text!r}: use one of its losses such as cross_entropy or "
            "mse_loss, or your own as file.py:function"
        )
    loss: Callable[..., Any] = found
    return loss


# ---- Configurations of transformers ----


def transformers_model(path: Path, inputs: Sequence[str] = ()) -> CustomModel:
    """Make a model of transformers from its configuration, without weights.

    Args:
        path: a config.json, or the folder of a model that has one.
        inputs: what it is called with, if it is not what models of its kind usually are.

    Raises:
        UnknownModel: it cannot be read.
        UnusableModel: transformers does not know its kind.
    """
    path = path / "config.json" if path.is_dir() else path
    if path.suffix == ".py":
        raise UnusableModel(f"missing function: write {path}:FUNCTION, which returns the model")
    read = load_config(path)
    if not isinstance(read.get("model_type"), str):
        raise UnusableModel(
            f'{path} has no "model_type", so it is not the configuration of a transformers model: '
            'add it, for example "model_type": "llama"'
        )
    with _torchvision_loads():
        config = _config(path, read)
        kind = _class_of(path, config)
    if getattr(config, "is_encoder_decoder", False):
        _begin_texts(config, read)
    config.use_cache = False  # as its Trainer sets it: keys and values are kept for generating
    return CustomModel(
        f"{kind.__name__} ({path})",
        partial(kind, config),
        tuple(map(Input, inputs or _usual_inputs(path, kind, config))),
        most_tokens=getattr(config, "max_position_embeddings", None),
    )


def _config(path: Path, read: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    kind = read["model_type"]
    try:
        return AutoConfig.for_model(**read)
    except Exception as error:
        if "Unrecognized" in str(error):
            raise UnusableModel(f"{path}: {_unknown_type(kind)}") from error
        # transformers' own checks put the reason last: "...:\n    ValueError: The hidden size ..."
        reason = f"{error}".strip().splitlines()[-1].strip().removeprefix("ValueError: ")
        raise UnusableModel(f"transformers refuses {path}: {reason}") from error


def _unknown_type(kind: str) -> str:
    import transformers
    from transformers import CONFIG_MAPPING

    hint = did_you_mean(kind, map(str, CONFIG_MAPPING))
    return (
        f"transformers {transformers.__version__} does not know the model type {kind!r}: "
        f"{hint and f'{hint} If not, '}install a version that has it"
    )


def _begin_texts(config: Any, read: dict[str, Any]) -> None:
    """Give a decoder the token that texts begin with, which some configurations leave out."""
    for name in ("decoder_start_token_id", "pad_token_id"):
        if getattr(config, name, None) is None:
            setattr(config, name, read.get(name) or 0)


def _class_of(path: Path, config: Any) -> type:
    import transformers
    from transformers.models.auto import modeling_auto

    usual = [
        found
        for mapping in _USUAL_CLASSES
        if (found := getattr(modeling_auto, mapping).get(config.model_type))
    ]
    named = [name for name in config.architectures or () if name.endswith(tuple(_CALLED_WITH))]
    for name in [*named, *usual]:
        found = getattr(transformers, name, None)
        if found is not None:
            kind: type = found
            return kind
    raise UnusableModel(
        f"{path}: no class of transformers that is trained on text or images is known for the "
        f"model type {config.model_type!r}; write a function that makes the model, and give it as "
        "file.py:function with --input"
    )


def _usual_inputs(path: Path, kind: type, config: Any) -> Sequence[str]:
    main: str = getattr(kind, "main_input_name", "input_ids")
    if main == "input_features" and hasattr(config, "num_mel_bins"):  # Whisper
        frames = 2 * config.max_source_positions
        return (f"input_features=float32[B,{config.num_mel_bins},{frames}]", "labels=int64[B,S]")
    for ending, inputs in _CALLED_WITH.items():
        has_pixels = "pixel_values" in inputs[0]
        if kind.__name__.endswith(ending) and has_pixels == (main == "pixel_values"):
            return [_filled_in(each, config) if has_pixels else each for each in inputs]
    raise UnusableModel(
        f"{path}: what {kind.__name__} is called with in training is not known; say it with "
        f'--input, such as --input "{main}=float32[B,S]" --input "labels=int64[B,S]"'
    )


def _filled_in(text: str, config: Any) -> str:
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    channels = getattr(config, "num_channels", 3)
    return text.format(channels=channels, height=height, width=width)
