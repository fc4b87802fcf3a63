"""Programs that the portable engine cannot run and the native one can: what to say of them."""

from __future__ import annotations

_SETUP = "`vramlab native setup --triton`, then `vramlab run --engine native`"


def native_hint(error: BaseException | None) -> str | None:
    """Say what runs a program that ended so; None where nothing is known of its error.

    Two are known: kernels written in Triton, which a CPU build of PyTorch comes without; and
    parameters of a class of their own, such as bitsandbytes' weights of four bits, which change
    their type when `module.cuda()` moves them.
    """
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"Its kernels are written in Triton, which comes with the native engine: {_SETUP}"
    if isinstance(error, RuntimeError) and "Couldn't swap" in str(error):
        return (
            "Parameters of a class of their own, such as bitsandbytes' 4-bit weights, cannot be "
            f"moved on the portable engine. The native one runs them: {_SETUP}"
        )
    return None
