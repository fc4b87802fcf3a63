"""Another way that fits: what attention keeps, computed again."""

configuration = dict(
    micro_batch=16, precision="autocast float16", attention="efficient", checkpointing="selective"
)
