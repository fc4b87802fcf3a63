"""What stands in for libraries beside PyTorch: NVML, safetensors, torchvision, Triton."""
