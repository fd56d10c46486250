"""The networks of suite.py in PyTorch."""

import suite
from suite import BETA1, BETA2, EPSILON, LEARNING_RATE, NETWORKS

import torch
from torch import nn
from torch.nn import functional

WAYS = ["eager", "graph", "deterministic", "compile"]


def mlp(net):
    return nn.Sequential(nn.Linear(net.input[0], net.hidden), nn.ReLU(), nn.Linear(net.hidden, net.classes))


def lenet(net):
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, net.classes))


class Residual(nn.Module):
    """Two 3 x 3 convolutions, or 1 x 1, 3 x 3 (which has the stride) and 1 x 1."""

    def __init__(self, inputs, filters, stride, bottleneck):
        super().__init__()
        outputs = 4 * filters if bottleneck else filters
        if bottleneck:
            self.body = nn.Sequential(normalized(inputs, filters, 1), nn.ReLU(inplace=True),
                                      normalized(filters, filters, 3, stride), nn.ReLU(inplace=True),
                                      normalized(filters, outputs, 1))
        else:
            self.body = nn.Sequential(normalized(inputs, filters, 3, stride), nn.ReLU(inplace=True),
                                      normalized(filters, filters, 3))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else normalized(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def normalized(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


def resnet(net):
    layers = [normalized(net.input[2], net.width, 7 if net.imagenet else 3, 2 if net.imagenet else 1), nn.ReLU(inplace=True)]
    if net.imagenet:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = filters = net.width
    for stage, blocks in enumerate(net.blocks):
        for i in range(blocks):
            layers.append(Residual(inputs, filters, 2 if i == 0 and stage > 0 else 1, net.bottleneck))
            inputs = 4 * filters if net.bottleneck else filters
        filters *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, net.classes))


def published(net):
    from torchvision import models

    # Of Inception's two classifiers Keras has the last one alone.
    options = {"aux_logits": False, "init_weights": False} if net.torchvision == "inception_v3" else {}
    return getattr(models, net.torchvision)(weights=None, num_classes=net.classes, **options)


class ResidualV2(nn.Module):
    """What is normalised before its convolutions, added to what came in."""

    def __init__(self, inputs, filters, stride, widens):
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.widened = nn.Conv2d(inputs, 4 * filters, 1, stride) if widens else None
        self.halved = nn.MaxPool2d(1, stride) if stride > 1 else nn.Identity()
        self.body = nn.Sequential(nn.Conv2d(inputs, filters, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(),
                                  nn.Conv2d(filters, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(),
                                  nn.Conv2d(filters, 4 * filters, 1))

    def forward(self, x):
        before = self.before(x)
        return self.body(before) + (self.halved(x) if self.widened is None else self.widened(before))


def resnet_v2(net):
    layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(net.blocks):
        filters = 64 << stage
        for i in range(count):  # the last block of a stage halves the image, but for the last stage's
            stride = 2 if i + 1 == count and stage + 1 < len(net.blocks) else 1
            layers.append(ResidualV2(inputs, filters, stride, i == 0))
            inputs = 4 * filters
    return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, net.classes))


class Separable(nn.Module):
    """Each channel by itself in windows of 3 x 3, then all channels of a pixel."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
                                    nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.layers(x)


class Separables(nn.Module):
    """Some of them, with what came in added: halved by a shortcut where they end in a pooling."""

    def __init__(self, *widths, first_relu=True, halves=True):
        super().__init__()
        layers = []
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            layers += [nn.ReLU()] * (i > 0 or first_relu) + [Separable(inputs, outputs)]
        self.body = nn.Sequential(*layers, *[nn.MaxPool2d(3, 2, 1)] * halves)
        self.shortcut = nn.Sequential(nn.Conv2d(widths[0], widths[-1], 1, 2, bias=False),
                                      nn.BatchNorm2d(widths[-1])) if halves else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def xception(net):
    def stem(inputs, outputs, stride):
        return [nn.Conv2d(inputs, outputs, 3, stride, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *stem(3, 32, 2), *stem(32, 64, 1), Separables(64, 128, 128, first_relu=False), Separables(128, 256, 256),
        Separables(256, 728, 728), *(Separables(728, 728, 728, 728, halves=False) for _ in range(8)),
        Separables(728, 728, 1024), Separable(1024, 1536), nn.ReLU(inplace=True), Separable(1536, 2048), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, net.classes))


class Block(nn.Module):
    """A transformer's: attention and two dense layers, each behind a normalisation."""

    def __init__(self, width, heads, hidden, causal):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(c, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class vit(nn.Module):  # noqa: N801 (all networks are called alike)
    def __init__(self, net):
        super().__init__()
        self.patches = nn.Conv2d(net.input[2], net.width, net.patch, net.patch)
        self.positions = nn.Parameter(torch.randn((net.input[0] // net.patch) ** 2, net.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(net.width, net.heads, net.hidden, False) for _ in range(net.depth)))
        self.norm, self.head = nn.LayerNorm(net.width, eps=1e-6), nn.Linear(net.width, net.classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


class gpt(nn.Module):  # noqa: N801
    def __init__(self, net):
        super().__init__()
        self.tokens = nn.Embedding(net.vocabulary, net.width)
        self.positions = nn.Parameter(torch.randn(net.input[0], net.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(net.width, net.heads, 4 * net.width, True) for _ in range(net.depth)))
        self.norm, self.head = nn.LayerNorm(net.width, eps=1e-6), nn.Linear(net.width, net.vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        if net.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


class Recurrent(nn.Module):
    def __init__(self, net, layer):
        super().__init__()
        self.embedding = nn.Embedding(net.vocabulary, net.width)
        self.layer, self.head = layer(net.width, net.units, batch_first=True), nn.Linear(net.units, net.classes)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens))[0][:, -1])


def lstm(net):
    return Recurrent(net, nn.LSTM)


def gru(net):
    return Recurrent(net, nn.GRU)


class unet(nn.Module):  # noqa: N801
    """Twice two convolutions at every resolution, on the way down and on the way up, joined across."""

    def __init__(self, net):
        super().__init__()

        def pair(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(inplace=True))

        widths = [net.width << i for i in range(net.depth + 1)]
        inputs = [net.input[2], *widths]
        self.down = nn.ModuleList(pair(inputs[i], widths[i]) for i in range(net.depth + 1))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1])
        self.up = nn.ModuleList(pair(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(net.width, net.classes, 1)

    def forward(self, x):
        across = []
        for i, layer in enumerate(self.down):
            x = layer(x if i == 0 else functional.max_pool2d(x, 2))
            across.append(x)
        for i in reversed(range(len(self.up))):
            x = self.up[i](torch.cat([self.widen[i](x), across[i]], 1))
        return self.head(x)


def conv3d(net):
    layers, inputs = [], net.input[-1]
    for i, filters in enumerate(net.filters):
        layers += [nn.MaxPool3d(2)] * (i > 0) + [nn.Conv3d(inputs, filters, 3, padding=1), nn.ReLU(inplace=True)]
        inputs = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(inputs, net.classes))


def embedding_bag(net):
    return nn.Sequential(nn.EmbeddingBag(net.vocabulary, net.width, mode="mean"), nn.Linear(net.width, net.classes))


def optimizer_of(net, model, on_gpu, graph):
    options = {"fused": True}
    if net.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)
    options |= {"betas": (BETA1, BETA2), "eps": EPSILON, "capturable": on_gpu and graph}
    if net.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, **options)
    return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, **options)


class TorchSuite:
    version = torch.__version__.split("+")[0]

    def __init__(self, device):
        self.device = {"gpu": "cuda", "cpu": "cpu"}[device]
        self.on_gpu = device == "gpu"
        if self.on_gpu and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        torch.backends.cudnn.benchmark = True  # shapes stay the same: the fastest algorithm is found by trial
        torch._inductor.config.freezing = not self.on_gpu  # weights of predictions in the layouts of oneDNN's kernels

    def builders(self, way, work, batch):
        """Ways to write the same step, of which the fastest is measured: images by channel or by pixel."""
        task, name, policy = suite.parsed(work)
        layouts = [False, True] if suite.has_images(name) else [False]
        if way == "compile" and self.on_gpu:  # takes minutes: the layout that its kernels are written for
            layouts = [suite.has_images(name) and policy == "mixed_bfloat16"]
        return [lambda layout=layout: self.build(way, task, name, policy, batch, layout) for layout in layouts]

    def build(self, way, task, name, policy, batch, channels_last):
        net = NETWORKS[name]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = policy == "tf32"
        self.tidy()
        torch.use_deterministic_algorithms(way == "deterministic")
        if way == "compile":  # all rows are compiled from the same functions, of each of which few versions are kept
            torch.compiler.reset()
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        arrays = [torch.from_numpy(a) for a in suite.data(name, batch)]
        if suite.kind(name) == "attention":
            step, keeps = self.attention(way, task, policy, arrays)
        else:
            step, keeps = self.network(way, task, name, net, policy, arrays, channels_last)
        if way == "graph":
            step = self.recorded(step)

        def run(iterations):
            for _ in range(iterations):
                step()
            if self.on_gpu:
                torch.cuda.synchronize()

        run.keeps = keeps  # what a recorded graph points into lives as long as it
        if self.on_gpu:
            run.memory = lambda: torch.cuda.max_memory_allocated() - before
        return run

    def network(self, way, task, name, net, policy, arrays, channels_last):
        model = globals()[suite.kind(name)](net).to(self.device)
        x, y = arrays
        y = y.long()
        if suite.has_images(name) or suite.kind(name) == "vit":
            x = x.movedim(-1, 1)  # a view: channels last in memory
            if channels_last:
                model = model.to(memory_format=torch.channels_last_3d if name == "conv3d" else torch.channels_last)
            else:
                x = x.contiguous()
        if task == "host" and self.on_gpu:
            x, y = x.pin_memory(), y.pin_memory()
        else:
            x, y = x.to(self.device), y.to(self.device)

        def forward(x):
            # Casts of weights are not kept from one recorded step to the next.
            with torch.autocast(self.device, torch.bfloat16, enabled=policy == "mixed_bfloat16", cache_enabled=way != "graph"):
                return model(x)

        if task == "predict":
            model.eval()
            forward = torch.compile(forward, dynamic=False) if way == "compile" else forward

            def step():
                with torch.inference_mode(way != "compile"), torch.no_grad():
                    forward(x)

            return step, (model, x)

        optimizer = optimizer_of(net, model, self.on_gpu, way == "graph")

        def loss_of(x, y):
            logits = forward(x)
            if suite.kind(name) == "gpt":
                logits, y = logits.flatten(0, 1), y.flatten()
            return functional.cross_entropy(logits.float(), y)

        if way == "compile":
            loss_of = torch.compile(loss_of, dynamic=False)

        def train(x, y):
            optimizer.zero_grad(set_to_none=True)
            loss_of(x, y).backward()
            optimizer.step()

        if task == "host":
            def step():
                train(x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True))
        else:
            def step():
                train(x, y)

        return step, (model, optimizer, x, y)

    def attention(self, way, task, policy, arrays):
        dtype = torch.bfloat16 if policy == "mixed_bfloat16" else torch.float32
        q, k, v, gradient = (a.to(self.device, dtype).transpose(1, 2) for a in arrays)
        inputs = [q, k, v]

        def attend(q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        if way == "compile":
            attend = torch.compile(attend, dynamic=False)
        if task == "predict":
            def step():
                with torch.no_grad():
                    attend(*inputs)
        else:
            for part in inputs:
                part.requires_grad_()

            def step():
                torch.autograd.grad(attend(*inputs), inputs, gradient)

        return step, (inputs, gradient)

    def recorded(self, step):
        """One launch for the whole step."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def tidy(self):
        if self.on_gpu:
            torch.cuda.empty_cache()
