"""Predictions of GPU memory in closed form: small pure functions, bytes or counts out, as `int`.

Nothing here is measured, and nothing imports torch: each function is arithmetic that fits on a
sheet of paper, with its source. `vramlab_course.experiments` compares them with measurements.
What the core needs, too, lies there: a transformer's terms in `vramlab.programs`; sizes of blocks,
collectives and times in `vramlab.cuda_rules`.

    accumulation        what a micro-batch holds, and its peak
    parameters          how many parameters a layer has
    activations         what a forward pass keeps for the backward pass
    training            what a training step of a chain of Linear layers holds, and its peak
    mlp_block           what a transformer's MLP block keeps
    operators           what common operators keep for their backward pass
    per_parameter       bytes per parameter, by how a model is trained
    checkpointing       what a chain of steps takes under a checkpointing schedule, and its FLOPs
    residual_network    what a residual network keeps, and where to cut it
    vgg16               VGG16's layers
    bert                BERT's parameters and activations, and the peak of a step
    inference           the peak of a forward pass that keeps nothing
    kv_cache            keys and values that a model keeps while it generates
    moe                 mixtures of experts: parameters, what a layer keeps, what ranks send
    serving             pages, latents, weights of few bits
    data_parallel       what each GPU holds with DataParallel, and each rank with DDP
    pipeline            what a stage of a pipeline holds and sends
    zero                what a rank has and sends when ranks divide states, gradients, parameters
    tensor_parallel     what a rank holds and sends when layers are cut
    offloading          what the host keeps for the GPU, and what travels
    attention           what each kind of attention keeps; BERT's growth with length
    packing             blocks and segments of tensors that stay
    retention           what retention (RetNet) keeps in each of its forms
    fit                 parabolas through measured points
    tiles               how much of a GPU a matrix product can use
    lean_optimizers     states of Adafactor and of 8-bit optimizers; GPT-2's shapes
    mixed_precision     what autocast keeps of Linear layers, and where it takes less than float32
    eight_bits          what layers keep that multiply in 8 bits, and the scales of their copies
    float_formats       floating point formats: limits, and how a number is stored
"""

from vramlab_course.on_access import modules_of

__getattr__ = modules_of(__name__)
