"""Predictions of GPU memory in closed form: small pure functions, bytes or counts out, as `int`.

`durations` alone answers in seconds, as `float`: the least that catalogue figures allow.

Nothing here is measured, and nothing imports torch: each function is arithmetic that fits on a
sheet of paper, with its source. `vramlab_course.experiments` holds them against measurements.

    accumulation        what a micro-batch holds, and its peak
    storage             what the caching allocator makes of a tensor's bytes
    parameters          how many parameters a layer has
    activations         what a forward pass keeps for the backward pass
    training            what a training step of a chain of Linear layers holds, and its peak
    mlp_block           what a transformer's MLP block keeps
    operators           what common operators keep for their backward pass
    optimizers          optimizer states, and what step() takes besides
    workspaces          what cuBLAS keeps out of the caching allocator
    reductions          what a sum takes while it runs
    per_parameter       bytes per parameter, by how a model is trained
    checkpointing       what a chain of steps takes under a checkpointing schedule, and its FLOPs
    residual_network    what a residual network keeps, and where to cut it
    vgg16               VGG16's layers
    bert                BERT's parameters and activations, and the peak of a step
    inference           the peak of a forward pass that keeps nothing
    kv_cache            keys and values that a model keeps while it generates
    durations           least times for bytes and FLOPs: memory, PCI Express, arithmetic, roofline
    data_parallel       what each GPU holds with DataParallel, and each rank with DDP
    collectives         what ranks send around a ring, and how long at best
    pipeline            what a stage of a pipeline holds and sends
    pipeline_schedules  who works when in a pipeline, and who waits
    zero                what a rank has and sends when ranks divide states, gradients, parameters
    tensor_parallel     what a rank holds and sends when layers are cut
    offloading          what the host keeps for the GPU, and what travels
    attention           what each kind of attention keeps; BERT's growth with length
    retention           what retention (RetNet) keeps in each of its forms
    fit                 parabolas through measured points
    tiles               how much of a GPU a matrix product can use
    transformer         what a transformer takes in training, term by term
    lean_optimizers     states of Adafactor and of 8-bit optimizers; GPT-2's shapes
    mixed_precision     what autocast keeps of Linear layers, and where it takes less than float32
    float_formats       floating point formats: limits, and how a number is stored
"""
