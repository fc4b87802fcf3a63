"""Which public training scripts are tried, each at a pinned commit, and how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.stranger_data import (
    Prepare,
    backbone,
    coco,
    compressed,
    cora,
    images,
    json_lines,
    language_model,
    masks,
    mnist,
    no_data,
    planetoid,
    point_clouds,
    saved_cifar10,
    scene,
    several,
    shards,
    text,
    tokens,
)


@dataclass(frozen=True)
class Stranger:
    """A public script."""

    name: str
    """For the table."""
    repository: str
    """OWNER/NAME on GitHub."""
    commit: str
    """Which state of it."""
    command: str
    """What follows `vramlab run`, options of its included."""
    folder: str = "."
    """Where it is started, in the repository."""
    prepare: Prepare = no_data
    """Puts data in place; gets the folder in which the script is started."""


_NANOGPT = partial(
    Stranger, repository="karpathy/nanoGPT", commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291"
)
_LECTURE = partial(
    Stranger,
    repository="karpathy/ng-video-lecture",
    commit="52201428ed7b46804849dea0b3ccf0de9df1a5c3",
)
_EXAMPLE = partial(
    Stranger, repository="pytorch/examples", commit="77f55b912142e11fcfdf5b530231fb9c52f181e8"
)
_LIGHTNING = partial(
    Stranger,
    repository="Lightning-AI/pytorch-lightning",
    commit="7f0c3436cd3f6ad3753125672024fc415cbcb414",
)
_TIMM = partial(
    Stranger,
    repository="huggingface/pytorch-image-models",
    commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
)
_TRL = partial(
    Stranger, repository="huggingface/trl", commit="f2cd57710ae345ea6428ae95363267fcf38a3dc8"
)
_TUTORIAL = partial(
    Stranger,
    repository="yunjey/pytorch-tutorial",
    commit="0500d3df5a2a8080ccfccbc00aca0eacc21818db",
)
_GANS = partial(
    Stranger,
    repository="eriklindernoren/PyTorch-GAN",
    commit="36d3c77e5ff20ebe0aeefd322326a134a279b93e",
)
_CLEANRL = partial(
    Stranger, repository="vwxyzjn/cleanrl", commit="fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"
)
_AIRBENCH = partial(
    Stranger,
    repository="KellerJordan/cifar10-airbench",
    commit="f1c599c4af24aca803e3e65a6a7e52a502e09d0e",
    prepare=saved_cifar10("cifar10"),
)
_LLMS = partial(
    Stranger,
    repository="rasbt/LLMs-from-scratch",
    commit="28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
)

_TRANSFORMERS = partial(
    Stranger,
    repository="lucidrains/x-transformers",
    commit="9252ed7838021ee61e6c5be0930b3a9a88efdf06",
)
_MINIMIND = partial(
    Stranger,
    repository="jingyaogong/minimind",
    commit="d65ef2c00ebc6082f9df11541e1b191655eddb00",
    folder="trainer",
    prepare=json_lines("../dataset/data.jsonl", text="word1 word2 word3 " * 100, count=256),
)
_POINTNET = partial(
    Stranger,
    repository="yanx27/Pointnet_Pointnet2_pytorch",
    commit="eb64fe0b4c24055559cea26299cb485dcb43d8dd",
    prepare=point_clouds("data/modelnet40_normal_resampled"),
)
_ODE = partial(
    Stranger, repository="rtqichen/torchdiffeq", commit="657943acefa826ef04c025ebeb1ff5e9d60dc268"
)
_PYGAT = partial(
    Stranger,
    repository="Diego999/pyGAT",
    commit="3664f2dc90cbf971564c0bf186dc794f12446d0c",
    prepare=cora("data/cora"),
)
_GEOMETRIC = partial(
    Stranger,
    repository="pyg-team/pytorch_geometric",
    commit="5c6461b2305ad068a6d61165b3c55852a11aaa41",
    prepare=planetoid("data/Planetoid/Cora/raw"),
)
_MONAI = partial(
    Stranger,
    repository="Project-MONAI/tutorials",
    commit="b3c6c998c931d78b61c4d32b37f962a987400f8a",
)

_WIKITEXT = text(*(f"data/wikitext-2/{part}.txt" for part in ("train", "valid", "test")))
_TORCHRUN = "-m torch.distributed.run --nproc_per_node 2"

STRANGERS = (
    _NANOGPT(
        "nanoGPT, its defaults",
        command="--gpu A100-40GB --steps 1 train.py",
        prepare=tokens("data/openwebtext/train.bin", "data/openwebtext/val.bin", vocabulary=50_257),
    ),
    _NANOGPT(
        "nanoGPT, Shakespeare",
        command="--gpu T4 --steps 2 train.py config/train_shakespeare_char.py --eval_iters=5",
        prepare=tokens(
            *("data/shakespeare_char/train.bin", "data/shakespeare_char/val.bin"),
            vocabulary=65,
            meta="data/shakespeare_char/meta.pkl",
        ),
    ),
    _LECTURE("ng-video-lecture, bigrams", command="--gpu T4 --steps 2 bigram.py"),
    _LECTURE("ng-video-lecture, GPT", command="--gpu T4 --steps 2 gpt.py"),
    Stranger(
        "minGPT, adder",
        "karpathy/minGPT",
        "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
        "--gpu T4 --steps 3 -m projects.adder.adder",
    ),
    Stranger(
        "minGPT, characters",
        "karpathy/minGPT",
        "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
        "--gpu T4 --steps 3 -m projects.chargpt.chargpt",
        prepare=text("input.txt", first="O God, O God!\n"),
    ),
    Stranger(
        "makemore",
        "karpathy/makemore",
        "988aa59e4d8fefa526d06f3b453ad116258398d4",
        "--gpu T4 --steps 3 makemore.py --device cuda",
    ),
    Stranger(
        "llama2.c",
        "karpathy/llama2.c",
        "350e04fe35433e6d2941dce5a1f53308f87058eb",
        "--gpu A100-40GB --steps 1 train.py --vocab_source=custom --vocab_size=4096",
        prepare=tokens("data/tok4096/data00.bin", "data/tok4096/data01.bin", vocabulary=4_096),
    ),
    _EXAMPLE(
        "pytorch/examples, MNIST",
        command="--gpu T4 --steps 3 main.py",
        folder="mnist",
        prepare=mnist("../data"),
    ),
    _EXAMPLE(
        "pytorch/examples, MNIST with an LSTM",
        command="--gpu T4 --steps 3 main.py --accel",
        folder="mnist_rnn",
        prepare=mnist("../data"),
    ),
    _EXAMPLE(
        "pytorch/examples, Forward-Forward",
        command="--gpu T4 --steps 3 main.py",
        folder="mnist_forward_forward",
        prepare=mnist("data"),
    ),
    _EXAMPLE(
        "pytorch/examples, Hogwild",
        command="--gpu T4 --steps 3 main.py --cuda",
        folder="mnist_hogwild",
        prepare=mnist("../data"),
    ),
    _EXAMPLE(
        "pytorch/examples, VAE",
        command="--gpu T4 --steps 3 main.py",
        folder="vae",
        prepare=mnist("../data"),
    ),
    _EXAMPLE(
        "pytorch/examples, siamese network",
        command="--gpu T4 --steps 3 main.py",
        folder="siamese_network",
        prepare=mnist("../data"),
    ),
    _EXAMPLE(
        "pytorch/examples, ImageNet",
        command="--gpu A100-40GB --steps 3 main.py --dummy",
        folder="imagenet",
    ),
    _EXAMPLE(
        "pytorch/examples, ImageNet on two GPUs",
        command="--gpu A100-40GB --count 2 --steps 3 main.py --dummy --multiprocessing-distributed "
        "--dist-url tcp://127.0.0.1:29511 --world-size 1 --rank 0",
        folder="imagenet",
    ),
    _EXAMPLE(
        "pytorch/examples, DCGAN",
        command="--gpu T4 --steps 3 main.py --dataset fake --accel",
        folder="dcgan",
    ),
    _EXAMPLE(
        "pytorch/examples, language model, LSTM",
        command="--gpu T4 --steps 3 main.py --accel",
        folder="word_language_model",
        prepare=_WIKITEXT,
    ),
    _EXAMPLE(
        "pytorch/examples, language model, Transformer",
        command="--gpu T4 --steps 3 main.py --accel --model Transformer --use-optimizer",
        folder="word_language_model",
        prepare=_WIKITEXT,
    ),
    _EXAMPLE(
        "pytorch/examples, super resolution",
        command="--gpu T4 --steps 3 main.py --upscale_factor 3 --accel",
        folder="super_resolution",
        prepare=images(
            *(f"dataset/BSDS300/images/{part}" for part in ("train", "test")), size=(481, 321)
        ),
    ),
    _EXAMPLE(
        "pytorch/examples, DDP on one GPU",
        command="--gpu T4 single_gpu.py 2 1",
        folder="distributed/ddp-tutorial-series",
    ),
    _EXAMPLE(
        "pytorch/examples, mp.spawn",
        command="--gpu T4 --count 2 multigpu.py 2 1",
        folder="distributed/ddp-tutorial-series",
    ),
    _EXAMPLE(
        "pytorch/examples, torchrun",
        command=f"--gpu T4 --count 2 {_TORCHRUN} multigpu_torchrun.py 2 1",
        folder="distributed/ddp-tutorial-series",
    ),
    _EXAMPLE(
        "pytorch/examples, DDP",
        command=f"--gpu T4 --count 2 {_TORCHRUN} example.py",
        folder="distributed/ddp",
    ),
    _EXAMPLE(
        "pytorch/examples, FSDP2",
        command=f"--gpu T4 --count 2 {_TORCHRUN} example.py",
        folder="distributed/FSDP2",
    ),
    _EXAMPLE(
        "pytorch/examples, tensor parallel",
        command=f"--gpu T4 --count 2 {_TORCHRUN} tensor_parallel_example.py",
        folder="distributed/tensor_parallelism",
    ),
    _EXAMPLE(
        "pytorch/examples, FSDP and tensor parallel",
        command="--gpu T4 --count 4 -m torch.distributed.run --nproc_per_node 4 fsdp_tp_example.py",
        folder="distributed/tensor_parallelism",
    ),
    _EXAMPLE(
        "pytorch/examples, minGPT with DDP",
        command=f"--gpu T4 --count 2 --steps 3 {_TORCHRUN} main.py data_config.path=data/input.txt",
        folder="distributed/minGPT-ddp/mingpt",
    ),
    _TUTORIAL(
        "pytorch-tutorial, RNN",
        command="--gpu T4 --steps 3 main.py",
        folder="tutorials/02-intermediate/recurrent_neural_network",
        prepare=mnist("../../data"),
    ),
    _TUTORIAL(
        "pytorch-tutorial, language model",
        command="--gpu T4 --steps 3 main.py",
        folder="tutorials/02-intermediate/language_model",
        prepare=text("data/train.txt", lines=2_000),
    ),
    _TUTORIAL(
        "pytorch-tutorial, GAN",
        command="--gpu T4 --steps 3 main.py",
        folder="tutorials/03-advanced/generative_adversarial_network",
        prepare=mnist("../../data"),
    ),
    _GANS(
        "PyTorch-GAN, WGAN-GP",
        command="--gpu T4 --steps 3 wgan_gp.py",
        folder="implementations/wgan_gp",
        prepare=mnist("../../data/mnist"),
    ),
    _GANS(
        "PyTorch-GAN, ACGAN",
        command="--gpu T4 --steps 3 acgan.py",
        folder="implementations/acgan",
        prepare=mnist("../../data/mnist"),
    ),
    Stranger(
        "pygcn",
        "tkipf/pygcn",
        "1600b5b748b3976413d1e307540ccc62605b4d6d",
        "--gpu T4 --steps 3 -m pygcn.train",
        prepare=cora("../data/cora"),
    ),
    Stranger(
        "Pytorch-UNet",
        "milesial/Pytorch-UNet",
        "21d7850f2af30a9695bbeea75f3136aa538cfc4a",
        "--gpu T4 train.py --epochs 1 --scale 1 --amp",
        prepare=several(images("data/imgs"), masks("data/masks")),
    ),
    Stranger(
        "DETR",
        "facebookresearch/detr",
        "29901c51d7fe8712168b8d0d64351170bc0f83e0",
        "--gpu T4 --steps 2 main.py --coco_path coco",
        prepare=several(coco("coco"), backbone("resnet50", "resnet50-0676ba61.pth")),
    ),
    Stranger(
        "DLRM",
        "facebookresearch/dlrm",
        "090956ee2319ddd349a42232958aefccfe3f7b0a",
        "--gpu T4 --steps 3 dlrm_s_pytorch.py --use-gpu --mini-batch-size 64 --num-batches 5 "
        "--arch-embedding-size 1000-1000-1000 --arch-sparse-feature-size 64 "
        "--arch-mlp-bot 128-64 --arch-mlp-top 256-1",
    ),
    _TIMM(
        "timm, ResNet-50",
        command="--gpu A100-40GB --steps 3 train.py data --model resnet50 -b 16 --num-classes 2 "
        "--amp",
        prepare=images("data/train/a", "data/train/b", "data/validation/a", "data/validation/b"),
    ),
    _TIMM(
        "timm, ViT-B, with EMA",
        command="--gpu A100-40GB --steps 3 train.py data --model vit_base_patch16_224 -b 16 "
        "--opt adamw --model-ema --num-classes 2",
        prepare=images("data/train/a", "data/train/b", "data/validation/a", "data/validation/b"),
    ),
    _TIMM(
        "timm, benchmark of training",
        command="--gpu A100-40GB benchmark.py --bench train --model convnext_tiny -b 32 "
        "--num-bench-iter 10 --num-warm-iter 1",
    ),
    Stranger(
        "open_clip, ViT-B-32",
        "mlfoundations/open_clip",
        "89fb801f1e6087880e951fc8354b8a2077b79c6d",
        "--gpu A100-40GB --steps 3 -m open_clip_train.main --dataset-type synthetic "
        "--train-num-samples 256 --batch-size 32 --model ViT-B-32 --workers 2 --epochs 1",
        "src",
    ),
    _AIRBENCH("airbench94", command="--gpu A100-40GB --steps 3 legacy/airbench94.py"),
    _AIRBENCH("airbench94, Muon", command="--gpu A100-40GB --steps 3 airbench94_muon.py"),
    _LIGHTNING(
        "Lightning, Transformer",
        command="--gpu T4 --steps 3 transformer.py",
        folder="examples/pytorch/basics",
        prepare=text("data/wikitext-2.txt", lines=25_000),
    ),
    _LIGHTNING(
        "Lightning Fabric, language model",
        command="--gpu T4 --steps 3 train.py",
        folder="examples/fabric/language_model",
        prepare=text("data/wikitext-2.txt", lines=25_000),
    ),
    _LIGHTNING(
        "Lightning Fabric, image classifier",
        command="--gpu T4 --steps 3 train_fabric.py",
        folder="examples/fabric/image_classifier",
        prepare=mnist("../../../Datasets"),
    ),
    _CLEANRL("CleanRL, PPO", command="--gpu T4 --steps 3 cleanrl/ppo.py"),
    _CLEANRL("CleanRL, DQN", command="--gpu T4 --steps 3 -m cleanrl.dqn --learning-starts 200"),
    _LLMS(
        "LLMs-from-scratch, DDP",
        command="--gpu T4 --count 2 DDP-script.py",
        folder="appendix-A/01_main-chapter-code",
    ),
    Stranger(
        "Opacus, MNIST",
        "pytorch/opacus",
        "4d0ebc84613d214fbfd37fbfd1390e3747a625ce",
        "--gpu T4 --steps 3 examples/mnist.py --device cuda --data-root data",
        prepare=mnist("data"),
    ),
    _TRL(
        "TRL, SFT",
        command="--gpu A100-40GB --steps 2 trl/scripts/sft.py --model_name_or_path gpt "
        "--dataset_name data --output_dir out --max_length 256",
        prepare=several(
            language_model("gpt", weights=True, n_layer=4, vocab_size=512),
            json_lines("data/train.jsonl", text="word1 word2 word3 " * 100),
        ),
    ),
    _TRL(
        "TRL, SFT with LoRA",
        command="--gpu A100-40GB --steps 2 trl/scripts/sft.py --model_name_or_path gpt "
        "--dataset_name data --output_dir out --max_length 256 --use_peft",
        prepare=several(
            language_model("gpt", weights=True, n_layer=4, vocab_size=512),
            json_lines("data/train.jsonl", text="word1 word2 word3 " * 100),
        ),
    ),
    _TRL(
        "TRL, DPO",
        command="--gpu A100-40GB --steps 2 trl/scripts/dpo.py --model_name_or_path gpt "
        "--dataset_name data --output_dir out --max_length 256",
        prepare=several(
            language_model("gpt", weights=True, n_layer=4, vocab_size=512),
            json_lines(
                "data/train.jsonl", prompt="word1 " * 50, chosen="word2 " * 50, rejected="word3 "
            ),
        ),
    ),
    Stranger(
        "diffusers, unconditional",
        "huggingface/diffusers",
        "58eb52c0803ea9af3abec60841c2a093bdf1f951",
        "--gpu A100-40GB --steps 2 train_unconditional.py --train_data_dir pictures "
        "--output_dir out --train_batch_size 4",
        "examples/unconditional_image_generation",
        images("pictures", count=16),
    ),
    Stranger(
        "modded-nanogpt, Muon",
        "KellerJordan/modded-nanogpt",
        "f411b3d346aa52d3504324ca93c230fd84c6c07f",
        "--gpu H100 --steps 2 -m torch.distributed.run --nproc_per_node 1 train_gpt2.py",
        "records/track_1_short/2024-10-10_Muon",
        several(
            shards("data/fineweb10B/fineweb_train_0.bin", count=2_000_000),
            shards("data/fineweb10B/fineweb_val_0.bin", count=12_000_000),
        ),
    ),
    _TRANSFORMERS(
        "x-transformers, enwik8",
        command="--gpu A100-40GB --steps 1 train_enwik8.py",
        prepare=compressed("data/enwik8.gz", 91_000_000),
    ),
    _TRANSFORMERS("x-transformers, copying", command="--gpu T4 --steps 2 train_copy.py"),
    _MINIMIND(
        "minimind, pretraining",
        command="--gpu RTX-4090 --steps 1 train_pretrain.py --data_path ../dataset/data.jsonl "
        "--num_workers 2",
    ),
    _MINIMIND(
        "minimind, mixture of experts",
        command="--gpu RTX-4090 --steps 1 train_pretrain.py --data_path ../dataset/data.jsonl "
        "--num_workers 2 --use_moe 1",
    ),
    Stranger(
        "nerf-pytorch",
        "yenchenlin/nerf-pytorch",
        "63a5a630c9abd62b0f21c08703d0ac2ea7d4b9dd",
        "--gpu T4 --steps 2 run_nerf.py --config configs/lego.txt",
        prepare=scene("data/nerf_synthetic/lego"),
    ),
    _POINTNET(
        "PointNet",
        command="--gpu T4 --steps 2 train_classification.py --model pointnet_cls --batch_size 8",
    ),
    _POINTNET(
        "PointNet++",
        command="--gpu T4 --steps 2 train_classification.py --model pointnet2_cls_ssg "
        "--batch_size 8 --use_normals",
    ),
    Stranger(
        "Barlow Twins",
        "facebookresearch/barlowtwins",
        "8e8d284ca0bc02f88b92328e53f9b901e86b4a3c",
        "--gpu A100-40GB --steps 2 main.py data --batch-size 64 --workers 2",
        prepare=images("data/train/a", "data/train/b"),
    ),
    Stranger(
        "TCN, adding problem",
        "locuslab/TCN",
        "2f8c2b817050206397458dfd1f5a25ce8a32fe65",
        "--gpu T4 --steps 3 add_test.py",
        "TCN/adding_problem",
    ),
    Stranger(
        "Transformer-XL",
        "kimiyoung/transformer-xl",
        "44781ed21dbaec88b280f74d9ae2877f52b492a5",
        "--gpu T4 --steps 2 train.py --cuda --data ../data/enwik8/ --dataset enwik8 --n_layer 12 "
        "--d_model 512 --n_head 8 --d_head 64 --d_inner 2048 --tgt_len 512 --mem_len 512 "
        "--eval_tgt_len 128 --batch_size 22",
        "pytorch",
        text(*(f"../data/enwik8/{part}.txt" for part in ("train", "valid", "test"))),
    ),
    Stranger(
        "char-rnn",
        "spro/char-rnn.pytorch",
        "282bcb6b15ab3929d6a588b455cfc0f19f32add4",
        "--gpu T4 --steps 1 train.py text.txt --cuda",
        prepare=text("text.txt"),
    ),
    _ODE("torchdiffeq, latent", command="--gpu T4 --steps 2 -m examples.latent_ode"),
    Stranger(
        "Glow",
        "rosinality/glow-pytorch",
        "97081ff115a694cf04aeedbd58447f33d242c879",
        "--gpu A100-40GB --steps 2 train.py pictures",
        prepare=images("pictures/a", size=(64, 64)),
    ),
    _CLEANRL("CleanRL, C51", command="--gpu T4 --steps 3 -m cleanrl.c51 --learning-starts 200"),
    _PYGAT("pyGAT", command="--gpu T4 --steps 3 train.py"),
    _PYGAT("pyGAT, sparse", command="--gpu A100-40GB --steps 3 train.py --sparse"),
    _GEOMETRIC("PyG, GCN", command="--gpu T4 --steps 3 examples/gcn.py"),
    _GEOMETRIC("PyG, GAT", command="--gpu T4 --steps 3 examples/gat.py"),
    _MONAI(
        "MONAI, U-Net of volumes",
        command="--gpu T4 --steps 2 unet_training_array.py",
        folder="3d_segmentation/torch",
    ),
    _MONAI(
        "MONAI, U-Net of pictures",
        command="--gpu T4 --steps 2 unet_training_dict.py",
        folder="2d_segmentation/torch",
    ),
    _TIMM(
        "timm, Swin",
        command="--gpu A100-40GB --steps 2 train.py data --model swin_tiny_patch4_window7_224 "
        "-b 16 --opt adamw --num-classes 2 --grad-checkpointing",
        prepare=images("data/train/a", "data/train/b", "data/validation/a", "data/validation/b"),
    ),
    Stranger(
        "RWKV-7",
        "BlinkDL/RWKV-LM",
        "524481d5099b38d9bc8ef1e89209161b86c8011b",
        "--gpu T4 --steps 2 rwkv7_train_simplified.py",
        "RWKV-v7/train_temp",
    ),
)
