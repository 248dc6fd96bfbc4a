"""Networks of the papers as PyTorch modules, sized to the data, with our choices where a paper states none.

Unless a network says otherwise, it has ReLU after every convolution and hidden layer, and PyTorch's default initial
weights. No paper states either.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tacit.core.errors import ConfigError
from tacit.learn.data.samples import Dataset
from tacit.learn.models.torch_module import import_torch


def femnist_cnn(data: Dataset, *, kernel: int = 2, hidden: int = 512) -> Any:
    """Returns paper 000's network for FEMNIST: convolutions of 5 × 5 and 2 × 2 with 32 and 64 filters, and 512 units.

    For 28 × 28 images of 10 digits it has 1,620,362 parameters. Not stated, our choice: images are padded so that
    convolutions keep their size, which gives 7 × 7 × 64 units before the hidden layer. The paper's 2 × 2 may be a
    typing error: the otherwise equal network of FedAvg's paper has 5 × 5 in both places (`kernel=5`; 1,663,370).
    """
    nn = import_torch().nn
    channels, height, width = _image(data, "femnist-cnn", least=4)
    before = (kernel - 1) // 2
    return _by_pixel(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ZeroPad2d((before, kernel - 1 - before, before, kernel - 1 - before)),
        nn.Conv2d(32, 64, kernel),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, data.classes),
    )


def gru(data: Dataset, *, embedding: int = 100, hidden: int = 128) -> Any:
    """Returns paper 000's network for Shakespeare: an embedding of 100, a GRU of 128 units, and scores for each token.

    It has 229 V + 88,320 parameters for V tokens. Not stated, our choice: one layer, hidden units that start at zero
    for each sample, and a loss over every place of a sample, not only the last.
    """
    torch = import_torch()
    if data.kind != "text":
        raise ConfigError(f"gru learns text, and {data.name} has {data.kind}; try: use shakespeare, or another model")

    class Recurrent(torch.nn.Module):  # type: ignore[name-defined, misc]
        """An embedding, a GRU, and scores for the next token at every place."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(data.classes, embedding)
            self.gru = torch.nn.GRU(embedding, hidden, batch_first=True)
            self.scores = torch.nn.Linear(hidden, data.classes)

        def forward(self, x: Any) -> Any:
            """Returns scores (batch, length, tokens)."""
            return self.scores(self.gru(self.embedding(x))[0])

    return Recurrent()


def resnet18(data: Dataset) -> Any:
    """Returns ResNet-18 (He et al. 2016), which paper 000 trains on CIFAR-10: 11,173,962 parameters there.

    Not stated, our choice: the variant for small images, with a 3 × 3 convolution first and no pooling. The vector also
    has the 9600 running means and variances of the batch norms, so its length is 11,183,562. A pass over CIFAR-10 takes
    hours on a few cores.
    """
    return resnet(data, widths=(64, 128, 256, 512), blocks=2)


def resnet(data: Dataset, *, widths: Sequence[int] = (8, 16, 32), blocks: int = 1) -> Any:
    """Returns a small residual network of ResNet-18's family: 19,954 parameters for CIFAR-10.

    The vector also has the 336 running means and variances of the batch norms.

    Args:
        data: Images to classify.
        widths: Filters of each stage. Each stage after the first halves height and width.
        blocks: Residual blocks per stage, of two convolutions each.
    """
    torch = import_torch()
    nn = torch.nn
    channels, _, _ = _image(data, "resnet", least=1)

    def conv_and_norm(ins: int, outs: int, size: int, stride: int) -> list[Any]:
        return [nn.Conv2d(ins, outs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outs)]

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        """A residual block: two convolutions and a shortcut."""

        def __init__(self, ins: int, outs: int, stride: int) -> None:
            super().__init__()
            self.around = nn.Sequential(
                *conv_and_norm(ins, outs, 3, stride), nn.ReLU(), *conv_and_norm(outs, outs, 3, 1)
            )
            same = stride == 1 and ins == outs
            self.through = nn.Identity() if same else nn.Sequential(*conv_and_norm(ins, outs, 1, stride))

        def forward(self, x: Any) -> Any:
            """Returns the sum of the convolutions and the shortcut."""
            return torch.relu(self.around(x) + self.through(x))

    stages: list[Any] = []
    for stage, outs in enumerate(widths):
        ins = widths[max(stage - 1, 0)]
        stages += [Block(ins, outs, 2 if stage else 1), *(Block(outs, outs, 1) for _ in range(blocks - 1))]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], data.classes)]
    return nn.Sequential(*conv_and_norm(channels, widths[0], 3, 1), nn.ReLU(), *stages, *head)


def lenet(data: Dataset) -> Any:
    """Returns LeNet, which paper 002 trains on CIFAR-10: 62,006 parameters there.

    Not stated, our choice: LeNet-5 as it is commonly written today, with 6 and 16 filters of 5 × 5, each followed by
    max pooling, and 120 and 84 units.
    """
    nn = import_torch().nn
    channels, height, width = _image(data, "lenet", least=16)
    after = [(size - 4) // 2 for size in (height, width)]
    after = [(size - 4) // 2 for size in after]
    return _by_pixel(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * after[0] * after[1], 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, data.classes),
    )


def gn_lenet(data: Dataset) -> Any:
    """Returns the network that paper 004 trains on CIFAR-10: 89,834 parameters there.

    The paper's Table 1 calls it "4 Conv2D Layers" and the other one GN-LeNet, but the numbers of parameters say the
    opposite. 89,834 parameters are three size-preserving convolutions of 5 × 5 with 32, 32 and 64 filters, each with
    max pooling and group norm, and scores. Not stated, our choice: two groups per norm, pooling before it, and ReLU
    after it.
    """
    nn = import_torch().nn
    channels, height, width = _image(data, "gn-lenet", least=8)
    layers: list[Any] = []
    for ins, outs in ((channels, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(ins, outs, 5, padding=2), nn.MaxPool2d(2), nn.GroupNorm(2, outs), nn.ReLU()]
    return _by_pixel(*layers, nn.Flatten(), nn.Linear(64 * (height // 8) * (width // 8), data.classes))


def celeba_cnn(data: Dataset) -> Any:
    """Returns the network that paper 004 trains on CelebA: 30,242 parameters for its 84 × 84 images in colour.

    It has four size-preserving convolutions of 3 × 3 with 32 filters, each with max pooling, and scores for two
    classes. (Table 1 calls it GN-LeNet, see `gn_lenet`.)
    """
    nn = import_torch().nn
    channels, height, width = _image(data, "celeba-cnn", least=16)
    layers: list[Any] = []
    for ins in (channels, 32, 32, 32):
        layers += [nn.Conv2d(ins, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return _by_pixel(*layers, nn.Flatten(), nn.Linear(32 * (height // 16) * (width // 16), data.classes))


NETWORKS: dict[str, Callable[..., Any]] = {
    "femnist-cnn": femnist_cnn,
    "gru": gru,
    "resnet-18": resnet18,
    "resnet": resnet,
    "lenet": lenet,
    "gn-lenet": gn_lenet,
    "celeba-cnn": celeba_cnn,
}


def _by_pixel(*layers: Any) -> Any:
    """Returns layers in sequence whose images are stored pixel by pixel in memory, and not channel by channel.

    The results are the same except for rounding. A step is 1.6 times as fast for the FEMNIST network, 1.3 times for
    those of paper 004, and 1.1 times for LeNet (`python -m benchmarks simulation`).
    """
    nn = import_torch().nn

    class ByPixel(nn.Sequential):  # type: ignore[name-defined, misc]
        """Layers in sequence."""

        def forward(self, x: Any) -> Any:
            """Returns scores."""
            count, *shape = x.permute(0, 2, 3, 1).shape
            # A PyTorch memory format would do the same, but it does not support gradients of single samples. For images
            # of one channel it changes nothing unless the strides are set explicitly.
            flat = x.permute(0, 2, 3, 1).reshape(count, -1)
            return super().forward(flat.reshape(count, *shape).permute(0, 3, 1, 2))

    return ByPixel(*layers)


def _image(data: Dataset, name: str, least: int) -> tuple[int, int, int]:
    """Returns channels, height and width; raises ConfigError if a network cannot process such images."""
    if data.kind != "images" or not data.classes:
        raise ConfigError(
            f"{name} classifies images, and {data.name} has {data.kind}; try: use softmax, or another model"
        )
    shape = data.x.shape[1:]
    height, width = shape[0], shape[1]
    if min(height, width) < least:
        raise ConfigError(
            f"{name} takes images of {least} × {least} or more, and those of {data.name} are {height} × {width}; try: "
            "use mlp, or another model"
        )
    return shape[2] if len(shape) == 3 else 1, height, width
