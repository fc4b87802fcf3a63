"""Settings of nbconvert: clear a notebook of outputs, times and versions before it is committed.

jupyter nbconvert --config .ci/clear_notebooks.py --to notebook --inplace NOTEBOOK...
"""

from typing import Any

from traitlets.config import get_config

c: Any = get_config()

c.NbConvertBase.log_level = "ERROR"
c.ClearOutputPreprocessor.enabled = True
c.ClearMetadataPreprocessor.enabled = True
c.ClearMetadataPreprocessor.preserve_nb_metadata_mask = {"kernelspec", ("language_info", "name")}
c.ClearMetadataPreprocessor.preserve_cell_metadata_mask = {"nbgrader", "tags", "jupyter"}
