"""The networks of bench/networks.cc as other frameworks train them: their sizes, data and optimizers, one table for all.

A work is called DEVICE/NETWORK/POLICY, DEVICE/predict/NETWORK/POLICY (the forward pass alone) or DEVICE/host/NETWORK/POLICY
(every batch comes from the host): "gpu/lenet/float32". Policies are float32 (TF32 stays off), tf32 and mixed_bfloat16
(computation in bfloat16, weights in float32). Layers, shapes, policy and optimizer are those of Lockstep's network; weights
and data are random numbers of the same shape.
"""

import re
from types import SimpleNamespace

TASKS = ["train", "predict", "host"]
POLICIES = ["float32", "tf32", "mixed_bfloat16"]
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-7


def images(side, channels, classes, **sizes):
    return SimpleNamespace(input=(side, side, channels), classes=classes, optimizer="adam", **sizes)


def published(torchvision, side=224, keras=None, **sizes):
    """Keras' networks of images, by the names in torchvision (None: it does not have it) and, of those for CPUs, in Keras."""
    return images(side, 3, 1000, torchvision=torchvision, keras=keras, **sizes)


def tokens(length, vocabulary, classes=None, optimizer="adam", **sizes):
    """Without classes, each token is labelled with one of the vocabulary."""
    return SimpleNamespace(input=(length,), vocabulary=vocabulary, classes=classes, optimizer=optimizer, **sizes)


def attention(length):
    """Queries, keys and values alone, causal, with the gradients of all three."""
    return SimpleNamespace(length=length, heads=12, size=64)


NETWORKS = {
    "mlp": SimpleNamespace(input=(784,), classes=10, optimizer="adam", hidden=128),
    "lenet": images(28, 1, 10),
    "resnet18": images(28, 1, 10, width=64, blocks=(2, 2, 2, 2), bottleneck=False, imagenet=False),
    "resnet18_small": images(28, 1, 10, width=16, blocks=(2, 2, 2, 2), bottleneck=False, imagenet=False),
    "resnet50": images(224, 3, 1000, width=64, blocks=(3, 4, 6, 3), bottleneck=True, imagenet=True),
    "resnet101": images(224, 3, 1000, width=64, blocks=(3, 4, 23, 3), bottleneck=True, imagenet=True),
    "resnet152": images(224, 3, 1000, width=64, blocks=(3, 8, 36, 3), bottleneck=True, imagenet=True),
    "resnet50_v2": published(None, blocks=(3, 4, 6, 3)),
    "resnet101_v2": published(None, blocks=(3, 4, 23, 3)),
    "resnet152_v2": published(None, blocks=(3, 8, 36, 3)),
    "vgg16": published("vgg16"),
    "vgg19": published("vgg19"),
    "densenet121": published("densenet121"),
    "mobilenet_v2": published("mobilenet_v2", keras="MobileNetV2"),
    "efficientnet_b0": published("efficientnet_b0", keras="EfficientNetB0"),
    "inception_v3": published("inception_v3", 299),
    "xception": published(None, 299),
    "vit_tiny": images(28, 1, 10, patch=7, width=64, depth=2, heads=4, hidden=128),
    "gpt_tiny": tokens(64, 256, width=64, depth=2, heads=4, tied=False),
    "nanogpt": tokens(256, 65, optimizer="adamw", width=384, depth=6, heads=6, tied=False),
    "gpt2": tokens(1024, 50304, optimizer="adamw", width=768, depth=12, heads=12, tied=True),
    "lstm": tokens(100, 10000, 10, width=64, units=128),
    "gru": tokens(100, 10000, 10, width=64, units=128),
    "unet": images(128, 3, 2, width=32, depth=3),
    "unet_small": images(64, 3, 2, width=16, depth=2),
    "conv3d": SimpleNamespace(input=(16, 32, 32, 3), classes=10, optimizer="adam", filters=(32, 64, 128)),
    "embedding_bag": tokens(32, 1000000, 10, width=64),
    "attention_1k": attention(1024),
    "attention_4k": attention(4096),
    "attention_16k": attention(16384),
}
for net in (*(NETWORKS[f"resnet{depth}"] for depth in (50, 101, 152)), *(n for n in NETWORKS.values() if hasattr(n, "torchvision"))):
    net.optimizer = "sgd"


def kind(name):
    """What a network is called where its definition stands: "resnet" for resnet18, "gpt" for all causal transformers."""
    if name in ("gpt_tiny", "nanogpt", "gpt2"):
        return "gpt"
    if is_published(name):
        return re.sub(r"\d+_", "_", name) if NETWORKS[name].torchvision is None else "published"
    return re.sub(r"(\d+)?(_small|_tiny|_\d+k)?$", "", name) if name != "conv3d" else name


def is_published(name):
    return hasattr(NETWORKS[name], "torchvision")


def has_images(name):
    return kind(name) in ("lenet", "resnet", "published", "resnet_v2", "xception", "unet", "conv3d")


def works(device, policies=POLICIES, tasks=("train", "predict")):
    """Every work of the suite; batches that come from the host are measured for the MLP alone."""
    names = [f"{device}/{'' if task == 'train' else task + '/'}{network}/{policy}"
             for task in tasks for network in NETWORKS for policy in policies]
    return names + ([f"{device}/host/mlp/{policy}" for policy in policies] if device == "gpu" else [])


def parsed(work):
    """(task, network, policy) of a work's name."""
    parts = work.split("/")[1:]
    task = parts.pop(0) if parts[0] in TASKS else "train"
    network, policy = parts
    return task, network, policy


def data(name, batch):
    """One batch as NumPy arrays, images channels last; of attention: queries, keys, values and the result's gradient."""
    import numpy as np

    rng = np.random.default_rng(1)
    net = NETWORKS[name]
    if kind(name) == "attention":
        return [rng.standard_normal((batch, net.length, net.heads, net.size), dtype=np.float32) for _ in range(4)]
    if hasattr(net, "vocabulary"):
        x = rng.integers(0, net.vocabulary, (batch, *net.input)).astype(np.int32)
    else:
        x = rng.standard_normal((batch, *net.input), dtype=np.float32)
    if net.classes is None:
        return [x, rng.integers(0, net.vocabulary, x.shape).astype(np.int32)]
    labelled = x.shape[:3] if kind(name) == "unet" else (batch,)
    return [x, rng.integers(0, net.classes, labelled).astype(np.int32)]
