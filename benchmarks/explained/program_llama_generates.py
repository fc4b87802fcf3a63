import torch
import transformers

config = transformers.LlamaConfig(
    hidden_size=1024,
    num_hidden_layers=4,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=2816,
    vocab_size=32_000,
)
model = transformers.LlamaForCausalLM(config).half().cuda().eval()
with torch.no_grad():
    ids = torch.randint(0, 32_000, (16, 512), device="cuda")
    cache = None
    for _ in range(8):
        out = model(ids, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        ids = out.logits[:, -1:].argmax(-1)
