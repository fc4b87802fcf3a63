"""Data for public training scripts: small, random, and of the form that each of them reads.

No byte of a script's memory depends on what its data says, only on its shape. Each function puts
files into the folder in which a script is started; a file that the script brings stays as it is.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Prepare = Callable[[Path], None]
"""Puts data in place; gets the folder in which the script is started."""

TORCH_HOME = "torch_home"
"""The folder where PyTorch keeps downloaded weights, beside a script."""

_WORDS = tuple(f"word{number}" for number in range(500))


def no_data(folder: Path) -> None:
    """Prepare nothing: the script brings its data, or makes it."""


def several(*steps: Prepare) -> Prepare:
    """Prepare one thing after the other."""

    def prepare(folder: Path) -> None:
        for step in steps:
            step(folder)

    return prepare


def tokens(*paths: str, vocabulary: int, count: int = 20_000, meta: str | None = None) -> Prepare:
    """Write files of random tokens, two bytes each, as nanoGPT's prepare.py and others do.

    Args:
        paths: of the files.
        vocabulary: how many tokens there are.
        count: how many are written.
        meta: a pickle that says so, for nanoGPT's texts of single characters.
    """

    def prepare(folder: Path) -> None:
        import numpy as np

        numbers = np.random.default_rng(0)
        for path in paths:
            numbers.integers(vocabulary, size=count, dtype=np.uint16).tofile(_place(folder, path))
        if meta is not None:
            _place(folder, meta).write_bytes(pickle.dumps({"vocab_size": vocabulary}))

    return prepare


def shards(*paths: str, count: int) -> Prepare:
    """Write files of random tokens with the header of llm.c's `write_datafile`."""

    def prepare(folder: Path) -> None:
        import numpy as np

        header = np.zeros(256, dtype=np.int32)
        header[:3] = 20240520, 1, count
        for path in paths:
            written = np.random.default_rng(0).integers(50_257, size=count, dtype=np.uint16)
            _place(folder, path).write_bytes(header.tobytes() + written.tobytes())

    return prepare


def text(*paths: str, lines: int = 400, first: str = "") -> Prepare:
    """Write files of random words.

    Args:
        paths: of the files.
        lines: of twelve words each.
        first: goes before them.
    """

    def prepare(folder: Path) -> None:
        for path in paths:
            if not _place(folder, path).exists():
                words = random.Random(0)
                written = "\n".join(" ".join(words.choices(_WORDS, k=12)) for _ in range(lines))
                _place(folder, path).write_text(f"{first}{written}\n", encoding="utf-8")

    return prepare


def compressed(path: str, size_bytes: int) -> Prepare:
    """Write a file of one character, compressed by gzip: a text of which only the size counts."""

    def prepare(folder: Path) -> None:
        _place(folder, path).write_bytes(gzip.compress(b" " * size_bytes, compresslevel=1))

    return prepare


def images(
    *folders: str, size: tuple[int, int] = (256, 256), count: int = 64, mode: str = "RGB"
) -> Prepare:
    """Write pictures of noise, as PNG."""

    def prepare(folder: Path) -> None:
        from PIL import Image

        width, height = size
        noise = random.Random(0)
        for name in folders:
            for number in range(count):
                data = noise.randbytes(width * height * len(mode))
                picture = Image.frombytes(mode, size, data)
                picture.save(_place(folder, f"{name}/{number}.png"))

    return prepare


def masks(name: str, size: tuple[int, int] = (256, 256), count: int = 64) -> Prepare:
    """Write pictures that say which pixel belongs to what: 0 or 1."""

    def prepare(folder: Path) -> None:
        from PIL import Image

        width, height = size
        half = bytes(width * height // 2)
        for number in range(count):
            picture = Image.frombytes("L", size, half + b"\1" * (width * height - len(half)))
            picture.save(_place(folder, f"{name}/{number}.png"))

    return prepare


def mnist(root: str, count: int = 2_000) -> Prepare:
    """Write digits of noise in the format of MNIST.

    Source: `read_sn3_pascalvincent_tensor` in torchvision/datasets/mnist.py.
    """

    def prepare(folder: Path) -> None:
        noise = random.Random(0)
        for part in ("train", "t10k"):
            pictures = _place(folder, f"{root}/MNIST/raw/{part}-images-idx3-ubyte")
            header = struct.pack(">4I", 0x0803, count, 28, 28)
            pictures.write_bytes(header + noise.randbytes(count * 28 * 28))
            labels = _place(folder, f"{root}/MNIST/raw/{part}-labels-idx1-ubyte")
            digits = bytes(number % 10 for number in range(count))
            labels.write_bytes(struct.pack(">2I", 0x0801, count) + digits)

    return prepare


def saved_cifar10(root: str, count: int = 2_000) -> Prepare:
    """Write noise as the airbench scripts keep CIFAR-10: tensors in train.pt and test.pt."""

    def prepare(folder: Path) -> None:
        import torch

        for part in ("train", "test"):
            data = {
                "images": torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8),
                "labels": torch.arange(count) % 10,
                "classes": [str(number) for number in range(10)],
            }
            torch.save(data, _place(folder, f"{root}/{part}.pt"))

    return prepare


def coco(root: str, count: int = 8) -> Prepare:
    """Write pictures with boxes in the format of COCO 2017."""

    def prepare(folder: Path) -> None:
        for part in ("train2017", "val2017"):
            images(f"{root}/{part}", size=(320, 240), count=count)(folder)
            box = [20, 20, 100, 80]
            outline = [[20, 20, 120, 20, 120, 100, 20, 100]]
            boxes = [
                {"id": number, "image_id": number, "category_id": number % 3 + 1, "iscrowd": 0}
                | {"bbox": box, "area": 8_000, "segmentation": outline}
                for number in range(count)
            ]
            pictures = [
                {"id": number, "file_name": f"{number}.png", "width": 320, "height": 240}
                for number in range(count)
            ]
            kinds = [{"id": number, "name": f"{number}"} for number in range(1, 91)]
            written = {"images": pictures, "annotations": boxes, "categories": kinds, "info": {}}
            _place(folder, f"{root}/annotations/instances_{part}.json").write_text(
                json.dumps(written), encoding="utf-8"
            )

    return prepare


def backbone(model: str, name: str) -> Prepare:
    """Write random weights where torchvision keeps those that it has downloaded."""

    def prepare(folder: Path) -> None:
        import torch

        import vramlab

        with vramlab.VirtualGPU("T4"):  # beside which any wheel of torchvision loads
            models: Any = import_module("torchvision.models")
            weights = getattr(models, model)(weights=None).state_dict()
        torch.save(weights, _place(folder, f"{TORCH_HOME}/hub/checkpoints/{name}"))

    return prepare


def cora(root: str, nodes: int = 2_708, features: int = 1_433) -> Prepare:
    """Write a random graph as large as Cora, in its format."""

    def prepare(folder: Path) -> None:
        chance = random.Random(0)
        with open(_place(folder, f"{root}/cora.content"), "w", encoding="utf-8") as file:
            for node in range(nodes):
                bits = f"{chance.getrandbits(features) | 1:0{features}b}"
                file.write(f"{node} {' '.join(bits)} class{node % 7}\n")
        with open(_place(folder, f"{root}/cora.cites"), "w", encoding="utf-8") as file:
            for _ in range(5_429):
                file.write(f"{chance.randrange(nodes)}\t{chance.randrange(nodes)}\n")

    return prepare


def planetoid(root: str, name: str = "cora", nodes: int = 2_708, features: int = 1_433) -> Prepare:
    """Write a random graph as large as Cora, in the files that Planetoid's readers unpickle."""

    def prepare(folder: Path) -> None:
        import numpy as np
        from scipy.sparse import csr_matrix

        def save(part: str, data: Any) -> None:
            _place(folder, f"{root}/ind.{name}.{part}").write_bytes(pickle.dumps(data))

        chance = np.random.default_rng(0)
        words = csr_matrix((chance.random((nodes, features)) < 0.013).astype(np.float32))
        kinds = np.eye(7, dtype=np.int32)[np.arange(nodes) % 7]
        tested = 1_000
        for letter, data in (("x", words), ("y", kinds)):
            save(letter, data[:140])
            save(f"t{letter}", data[-tested:])
            save(f"all{letter}", data[:-tested])
        edges = chance.integers(nodes, size=(nodes, 2))
        save("graph", {node: [int(other) for other in edges[node]] for node in range(nodes)})
        order = "\n".join(str(nodes - tested + number) for number in range(tested))
        _place(folder, f"{root}/ind.{name}.test.index").write_text(order + "\n", encoding="utf-8")

    return prepare


def scene(root: str, count: int = 3, size: int = 800) -> Prepare:
    """Write pictures of a scene from known cameras, in the format of Blender's scenes for NeRF."""

    def prepare(folder: Path) -> None:
        place = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 4.0], [0, 0, 0, 1.0]]
        for part in ("train", "val", "test"):
            images(f"{root}/{part}", size=(size, size), count=count, mode="RGBA")(folder)
            frames = [
                {"file_path": f"./{part}/{number}", "transform_matrix": place}
                for number in range(count)
            ]
            written = json.dumps({"camera_angle_x": 0.69, "frames": frames})
            _place(folder, f"{root}/transforms_{part}.json").write_text(written, encoding="utf-8")

    return prepare


def point_clouds(root: str, count: int = 32, points: int = 1_024) -> Prepare:
    """Write random points with normals in the format of ModelNet40."""

    def prepare(folder: Path) -> None:
        import numpy as np

        chance = np.random.default_rng(0)
        kinds = [f"kind{number}" for number in range(40)]
        _place(folder, f"{root}/modelnet40_shape_names.txt").write_text("\n".join(kinds))
        for part in ("train", "test"):
            names = [f"{kinds[number % 40]}_{part}{number}" for number in range(count)]
            _place(folder, f"{root}/modelnet40_{part}.txt").write_text("\n".join(names))
            for name in names:
                path = _place(folder, f"{root}/{name.partition('_')[0]}/{name}.txt")
                np.savetxt(path, chance.normal(size=(points, 6)), fmt="%.4f", delimiter=",")

    return prepare


def language_model(path: str, weights: bool = False, **changes: Any) -> Prepare:
    """Write a configuration of GPT-2 and a tokenizer of words, as transformers saves them.

    Args:
        path: of the folder.
        weights: write random ones as well.
        changes: of the configuration.
    """

    def prepare(folder: Path) -> None:
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Whitespace

        import vramlab

        with vramlab.VirtualGPU("T4"):  # transformers imports torchvision, as `backbone` does
            from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

        names = ("<|endoftext|>", "<unk>", *_WORDS)
        words = Tokenizer(WordLevel({name: at for at, name in enumerate(names)}, "<unk>"))
        words.pre_tokenizer = Whitespace()
        end = {"eos_token": names[0], "bos_token": names[0], "pad_token": names[0]}
        make: Any = PreTrainedTokenizerFast
        tokenizer = make(tokenizer_object=words, unk_token="<unk>", model_max_length=1024, **end)
        tokenizer.save_pretrained(folder / path)
        configuration = GPT2Config(bos_token_id=0, eos_token_id=0, pad_token_id=0, **changes)
        saved = GPT2LMHeadModel(configuration) if weights else configuration
        saved.save_pretrained(folder / path)

    return prepare


def json_lines(path: str, count: int = 64, **columns: Any) -> Prepare:
    """Write the same row many times, as JSON."""

    def prepare(folder: Path) -> None:
        _place(folder, path).write_text(f"{json.dumps(columns)}\n" * count, encoding="utf-8")

    return prepare


def _place(folder: Path, path: str) -> Path:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
