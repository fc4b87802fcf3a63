"""Run a program on a virtual GPU and report where its memory peak came from.

    running.program.Program    a script or module, run as python runs it
    evidence.watch.Watch       everything below for one run; `with Watch(gpu) as watch`
    evidence.peak.PeakWatch    which blocks are live when allocated bytes are highest
    evidence.origins.Origins   which line of the program a block comes from, also in backward
    evidence.owners.Owners     which blocks parameters, gradients and optimizer states are in
    summary.Summary            the result, as data
    showing.text.as_text       the result, as text

`vramlab run` does this in a shell.
"""
