"""Feedback pages, named so that an LMS knows whose they are.

Canvas ("Upload submissions") and Moodle ("Upload multiple feedback files in a zip") give each file
to the student whose submission it is named after. So the pages get the names that the notebooks had
in the download, with another ending.

Sources: Canvas, infer_comment_context_from_filename in app/models/assignment.rb of
instructure/canvas-lms; Moodle, mod/assign/feedback/file/importziplib.php of moodle/moodle.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path

from vramlab_classroom.lms.archives import opened
from vramlab_classroom.lms.collecting import Item, sort_out
from vramlab_classroom.lms.submission_names import Layout


def feedback_zip(
    source: Path,
    destination: Path,
    feedback: Path,
    known: Collection[str],
    *,
    layout: Layout | None = None,
    assignment: str | None = None,
) -> list[Item]:
    """Write the feedback on the submissions in a download into a zip for upload.

    Args:
        source: the download, as it was given to `collect`.
        destination: the zip to write.
        feedback: the folder with `<student>/<assignment>/<assignment>.html`.
        known: names of the assignments there are.
        layout: as for `collect`.
        assignment: as for `collect`.

    Returns:
        What became of each submission in the download.

    Raises:
        UnusableParcelError: the download cannot be opened.
    """
    with opened(source) as parcels:
        handed_in, items = sort_out(parcels, known, layout, assignment)
    with zipfile.ZipFile(destination, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in handed_in:
            student = each.origin.student
            page = feedback / student / each.assignment / f"{each.assignment}.html"
            name = str(each.parcel.path.with_suffix(".html"))
            if page.is_file():
                archive.write(page, name)
                items.append(Item(str(each.parcel.path), True, f"{student}, {each.assignment}"))
            else:
                reason = f"there is no feedback for {student} on {each.assignment}"
                items.append(Item(str(each.parcel.path), False, reason))
    return sorted(items, key=lambda item: item.source)
