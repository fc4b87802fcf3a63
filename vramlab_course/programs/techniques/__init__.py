"""Ways to train, and to serve, that change what memory is needed, in plain PyTorch.

    optimizers           PyTorch's optimizers, by the course's names
    each_parameter       the base of optimizers that update one parameter after the other
    blockwise_adam       AdamW with states of one byte
    sign_sgd             an optimizer without states
    master_weights       16-bit parameters with float32 copies
    rounding             stochastic rounding
    step_in_backward     steps that are taken within the backward pass
    torch_checkpointing  torch's and transformers' checkpointing
    offloading           activations, states and layers on the host
    data_parallel        DataParallel, and DDP on one rank
    zero                 the stages of ZeRO
    tensor_parallel      layers whose matrices are cut
    pipeline_stage       stages of a pipeline
    paged_cache          keys and values in pages, for many requests
    batching             which request is in the batch when
    weight_only          weights of 4 or 8 bits

Schedules of checkpointing have a package of their own, `vramlab_course.programs.checkpointing`.
"""
