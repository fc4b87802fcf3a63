"""What the course trains, in plain PyTorch: sizes come from `vramlab_course.formulas`.

documents    the documents' models: VGG16, Linear layers
chains       chains of equal steps
encoder      BERT's encoder
transformer  GPT-2's decoder and its relatives, whole or a stage of a pipeline
retention    a layer of retention in its three forms
moe          a layer of experts, on one GPU and with an expert on each
"""
