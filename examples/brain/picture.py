"""The contact sheet: slices of samples above their labels, for visual inspection.

Slices are shown in radiological orientation: the patient's right is on the
viewer's left, the front of an axial slice is on top, and a sagittal slice looks
to the left. Only Pillow is needed; the font is the one that it includes.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from template import BACKGROUND, CSF, GREY, LABEL_NAMES, VENTRICLE, WHITE

COLOURS = {
    BACKGROUND: (11, 13, 18),
    CSF: (64, 132, 224),
    GREY: (226, 96, 92),
    WHITE: (246, 226, 188),
    VENTRICLE: (72, 206, 176),
}
_PAGE = (11, 13, 18)
_CARD = (20, 23, 30)
_BRIGHT = (236, 239, 244)
_DIM = (140, 149, 163)

_ZOOM = 2
_PADDING = 20  # Pixels inside a card and between cards.
_GAP = 6  # Pixels between slices.
_TITLE_HEIGHT = 112
_HEADING_HEIGHT = 84


def choose_different(metas, count):
    """Indices of `count` samples whose tissue intensities differ most from each other.

    `metas` are the samples' parameters. Greedy: the first sample, then always
    the one farthest from those chosen.
    """
    means = np.array([meta["class_mean"] for meta in metas])
    chosen = [0]
    while len(chosen) < min(count, len(means)):
        distance = np.linalg.norm(means[:, None] - means[chosen], axis=2).min(1)
        chosen.append(int(distance.argmax()))
    return chosen


def contact_sheet(samples, title, subtitle, columns=2):
    """Draw samples as cards of an axial, a coronal and a sagittal slice.

    Parameters
    ----------
    samples : list of (image, label, heading, detail): two uint8 volumes of one
        3-D shape with axes to the right, to the front and up, and two lines of
        text.
    title, subtitle : str, above the cards.
    columns : int, cards side by side.

    Returns
    -------
    PIL.Image.Image in RGB.
    """
    cards = [_card(*sample) for sample in samples]
    width, height = cards[0].size
    rows = -(-len(cards) // columns)
    sheet_width = columns * (width + _PADDING) + _PADDING
    sheet = Image.new("RGB", (sheet_width, rows * (height + _PADDING) + _PADDING + _TITLE_HEIGHT), _PAGE)
    for i, card in enumerate(cards):
        row, column = divmod(i, columns)
        sheet.paste(card, (_PADDING + column * (width + _PADDING), _TITLE_HEIGHT + row * (height + _PADDING)))
    draw = ImageDraw.Draw(sheet)
    draw.text((_PADDING, 24), title, _BRIGHT, _font(34))
    draw.text((_PADDING, 72), subtitle, _DIM, _font(19))
    _legend(draw, sheet_width - _PADDING, 46)
    return sheet


def three_slices(label):
    """Indices (axial, coronal, sagittal) of the slices to show, found by the lateral ventricles.

    The axial and the sagittal slice hold the most of them; the coronal one
    goes through their bodies, a little before the middle of their length.
    """
    ventricle = label == VENTRICLE
    length = np.flatnonzero(ventricle.any((0, 2)))
    coronal = length[0] + 0.6 * (length[-1] - length[0])
    return int(ventricle.sum((0, 1)).argmax()), int(coronal), int(ventricle.sum((1, 2)).argmax())


def _views(volume, slices):
    """The three slices as 2-D arrays, rows from top to bottom as they are shown."""
    axial, coronal, sagittal = slices
    return (
        volume[::-1, ::-1, axial].T,
        volume[::-1, coronal, ::-1].T,
        volume[sagittal, ::-1, ::-1].T,
    )


def _card(image, label, heading, detail):
    """One sample: three slices of the image, and below them those of the label."""
    slices = three_slices(label)
    rows = (
        [_grey_picture(view) for view in _views(image, slices)],
        [_label_picture(view) for view in _views(label, slices)],
    )
    row_height = max(view.height for view in rows[0])
    width = sum(view.width + _GAP for view in rows[0]) - _GAP + 2 * _PADDING
    card = Image.new("RGB", (width, _HEADING_HEIGHT + 2 * row_height + _GAP + _PADDING), _CARD)
    draw = ImageDraw.Draw(card)
    draw.text((_PADDING, 18), heading, _BRIGHT, _font(22))
    draw.text((_PADDING, 49), detail, _DIM, _font(16))
    for row, views in enumerate(rows):
        x, y = _PADDING, _HEADING_HEIGHT + row * (row_height + _GAP)
        for view in views:
            # A lower slice stays close to its partner in the upper row.
            card.paste(view, (x, y + (row_height - view.height if row == 0 else 0)))
            x += view.width + _GAP
    draw.text((_PADDING + 8, _HEADING_HEIGHT + 8), "R", _DIM, _font(16), anchor="lt")
    draw.text((_PADDING + rows[0][0].width - 8, _HEADING_HEIGHT + 8), "L", _DIM, _font(16), anchor="rt")
    return card


def _grey_picture(view):
    """An image slice, enlarged."""
    picture = Image.fromarray(np.ascontiguousarray(view))
    return picture.resize((picture.width * _ZOOM, picture.height * _ZOOM), Image.Resampling.BICUBIC).convert("RGB")


def _label_picture(view):
    """A label slice in colour, enlarged with smooth boundaries.

    Each label's mask is softened by half a voxel and enlarged separately, and
    every pixel gets the strongest label. This is done at twice the size and
    averaged, so that colours mix only at the edges.
    """
    size = (view.shape[1] * _ZOOM * 2, view.shape[0] * _ZOOM * 2)
    masks = [ndimage.gaussian_filter((view == label).astype(np.float32), 0.5) for label in COLOURS]
    strength = [Image.fromarray(mask).resize(size, Image.Resampling.BICUBIC) for mask in masks]
    colours = np.array(list(COLOURS.values()), np.uint8)[np.argmax([np.asarray(s) for s in strength], 0)]
    return Image.fromarray(colours).resize((size[0] // 2, size[1] // 2), Image.Resampling.BOX)


def _legend(draw, right, y):
    """Draw the names of the labels with their colours, right-aligned at `right`, centred on `y`."""
    font = _font(19)
    for label in sorted(LABEL_NAMES, reverse=True):
        if label == BACKGROUND:
            continue
        right -= draw.textlength(LABEL_NAMES[label], font)
        draw.text((right, y), LABEL_NAMES[label], _BRIGHT, font, anchor="lm")
        right -= 30
        draw.rounded_rectangle((right, y - 9, right + 18, y + 9), 4, COLOURS[label])
        right -= 28


def _font(size):
    """The font that Pillow includes, at a size in pixels."""
    return ImageFont.load_default(size)
