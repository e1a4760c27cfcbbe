"""Images as symmetric positive definite matrices: the covariance of nine features over the pixels of one image.

A descriptor is a function of its image and of public constants alone, never of other images: who changes one image
changes one matrix, so one record of the matrices is one record of the images.

Source: Tuzel, Porikli, Meer 2006, section 2 (the nine features); the scales, the edges and the ridge are ours.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedbook import arguments

FEATURES = ("x", "y", "red", "green", "blue", "|I_x|", "|I_y|", "|I_xx|", "|I_yy|")
GREY = (0.299, 0.587, 0.114)  # the intensity I of red, green and blue (ITU-R BT.601)
RIDGE = 1e-6  # of the mean variance, added to the diagonal; public
CHUNK = 512  # images at a time: 29 MB of features for 28x28 pixels


@torch.no_grad()
def region_covariance(images: Tensor) -> Tensor:
    """The region covariance of every image: C + 1e-6 (tr C / 9) I, C the covariance of :func:`pixel_features`.

    C has the divisor H W - 1. As x and y vary in every image, the trace is positive and the condition number at most
    9e6 + 1, for a blank image too.
    Shapes: ``images`` [n, 3, H, W], H and W at least 2, uint8 in 0..255 or floating-point in [0, 1]; result float64
    [n, 9, 9] on the images' device.
    Raises: TypeError, ValueError. Source: Tuzel, Porikli, Meer 2006, equation 2 (without the ridge).
    """
    arguments.tensor("images", images, shape=(None, 3, None, None))
    allowed = "uint8 in 0..255, or floating-point numbers in [0, 1]"
    if images.dtype != torch.uint8 and not images.dtype.is_floating_point:
        raise arguments.wrong(TypeError, "images", images, allowed)
    if images.dtype.is_floating_point and images.numel() and not bool(((images >= 0) & (images <= 1)).all()):
        raise arguments.wrong(ValueError, "images", images, allowed)
    result = torch.empty(len(images), 9, 9, dtype=torch.float64, device=images.device)
    for start in range(0, len(images), CHUNK):
        centred = pixel_features(images[start : start + CHUNK]).flatten(2)
        centred -= centred.mean(-1, keepdim=True)
        covariance = centred @ centred.mT / (centred.shape[-1] - 1)
        covariance = 0.5 * (covariance + covariance.mT)  # symmetric to the last bit
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        variance += RIDGE * variance.mean(-1, keepdim=True)
        result[start : start + CHUNK] = covariance
    return result


def pixel_features(images: Tensor) -> Tensor:
    """The nine features of every pixel, in the order of ``FEATURES``.

    Column x and row y, from 0 at one edge to 1 at the other; red, green and blue in [0, 1]; and of the intensity I
    the absolute differences |I(x+1) - I(x-1)| and |-I(x-1) + 2 I(x) - I(x+1)| along x and y. Outside of the image lies
    its nearest pixel.
    Shapes: ``images`` [n, 3, H, W] as in :func:`region_covariance`; result float64 [n, 9, H, W].
    """
    n, _, height, width = images.shape
    colours = images.double()
    if images.dtype == torch.uint8:
        colours /= 255
    features = colours.new_empty(n, 9, height, width)
    features[:, 0] = torch.linspace(0, 1, width, dtype=torch.float64, device=images.device)
    features[:, 1] = torch.linspace(0, 1, height, dtype=torch.float64, device=images.device)[:, None]
    features[:, 2:5] = colours
    intensity = sum(weight * colours[:, i : i + 1] for i, weight in enumerate(GREY))
    for axis, margin in enumerate(((1, 1, 0, 0), (0, 0, 1, 1))):  # along x, along y
        wide = pad(intensity, margin, mode="replicate")[:, 0]
        before, here, after = (wide.narrow(2 - axis, i, (width, height)[axis]) for i in range(3))
        features[:, 5 + axis] = (after - before).abs()
        features[:, 7 + axis] = (2 * here - before - after).abs()
    return features
