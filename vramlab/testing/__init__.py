"""GPU memory in tests: a plugin for pytest, which needs no GPU.

A mark says what a test may need:

    @pytest.mark.vram(gpu="A100-40GB", peak="<= 12 GiB")
    def test_training_fits():
        ...

Its modules:

    plugin   pytest's hooks
    limits   what the mark asks for
    golden   what a test needed when its golden file was written
"""
