"""Writes the ONNX files that the tests of models::import_onnx read, with the results of ONNX Runtime.

    python tests/keras/record_onnx_models.py [FOLDER]

For each model there is NAME.onnx, as PyTorch's exporters or onnx.helper write it, and NAME.safetensors with its inputs and, as
"output/NAME", what ONNX Runtime gives for them. Needs torch, onnx, onnxscript, onnxruntime and numpy; tests read the files alone.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

import fixture_files

torch.manual_seed(7)
rng = np.random.default_rng(7)


class Cnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.Hardswish(),
            torch.nn.MaxPool2d(3, stride=2, padding=1), torch.nn.Conv2d(8, 12, 1), torch.nn.LeakyReLU(0.1),
            torch.nn.AvgPool2d(2, ceil_mode=True))
        self.head = torch.nn.Linear(12, 5)
        for layer in self.features:
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.running_mean.uniform_(-0.5, 0.5)
                layer.running_var.uniform_(0.5, 1.5)

    def forward(self, x):
        x = self.features(x)
        return torch.softmax(self.head(x.mean((2, 3))), dim=1)


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 16), torch.nn.GELU(), torch.nn.Linear(16, 8),
                                          torch.nn.SiLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.a, self.b = torch.nn.Conv2d(6, 6, 3, padding=1), torch.nn.Conv2d(6, 6, 3, padding=2, dilation=2)
        self.head = torch.nn.Linear(6, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.b(torch.nn.functional.elu(self.a(x))))
        x = torch.nn.functional.pad(x, (1, 0, 0, 2))
        return self.head(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(torch.nn.Module):
    """A transformer's, with a causal mask and an embedding in front."""

    def __init__(self, dim=16, heads=4, context=8, vocabulary=11):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = torch.nn.Embedding(vocabulary, dim), torch.nn.Parameter(torch.randn(context, dim) * 0.1)
        self.before, self.after = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places[: tokens.shape[1]]
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.before(x)).split(dim, dim=2)
        q, k, v = (part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (dim // self.heads) ** 0.5
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
        shares = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        x = x + self.out((shares @ v).transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(torch.nn.functional.gelu(self.up(self.after(x)), approximate="tanh"))


def from_torch(module, inputs, path, dynamo, opset, names=("x",)):
    module.eval()
    if dynamo:
        dynamic = tuple({0: torch.export.Dim("batch", min=2, max=64)} for _ in inputs)
        torch.onnx.export(module, inputs, path, dynamo=True, opset_version=opset, dynamic_shapes=dynamic, input_names=list(names),
                          output_names=["y"], external_data=False)
    else:
        torch.onnx.export(module, inputs, path, dynamo=False, opset_version=opset, input_names=list(names), output_names=["y"],
                          dynamic_axes={name: {0: "batch"} for name in names})


def from_nodes(path):
    """What exporters of PyTorch do not write, or not in these forms."""
    def constant(name, value):
        return numpy_helper.from_array(np.asarray(value), name)

    weights = [constant("w", rng.normal(size=(6, 4)).astype(np.float32)), constant("c", rng.normal(size=(4,)).astype(np.float32)),
               constant("slope", rng.uniform(size=(4,)).astype(np.float32)), constant("starts", np.array([-3], np.int64)),
               constant("ends", np.array([np.iinfo(np.int64).min], np.int64)), constant("axes", np.array([1], np.int64)),
               constant("steps", np.array([-2], np.int64)), constant("parts", np.array([1, 3], np.int64)),
               constant("last", np.array(-1, np.int64)), constant("low", np.array(-0.6, np.float32)),
               constant("high", np.array(0.7, np.float32)), constant("pads", np.array([0, 1, 0, 2], np.int64)),
               constant("nine", np.array(9.0, np.float32)), constant("two", np.array([2], np.int64))]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["g"], alpha=0.5, beta=2.0),
        helper.make_node("PRelu", ["g", "slope"], ["p"]),
        helper.make_node("Clip", ["p", "low", "high"], ["q"]),
        helper.make_node("Split", ["q", "parts"], ["one", "three"], axis=1),
        helper.make_node("Slice", ["q", "starts", "ends", "axes", "steps"], ["back"]),
        helper.make_node("Concat", ["one", "three", "back"], ["joined"], axis=-1),
        helper.make_node("Pad", ["joined", "pads", "nine"], ["padded"]),
        helper.make_node("Gather", ["padded", "last"], ["column"], axis=1),
        helper.make_node("Unsqueeze", ["column", "axes"], ["again"]),
        helper.make_node("Shape", ["padded"], ["shape"]),
        helper.make_node("Expand", ["again", "shape"], ["wide"]),
        helper.make_node("ReduceMax", ["padded", "axes"], ["most"], keepdims=1),
        helper.make_node("Greater", ["padded", "most"], ["never"]),
        helper.make_node("Where", ["never", "wide", "padded"], ["chosen"]),
        helper.make_node("ArgMax", ["chosen"], ["place"], axis=1, keepdims=0),
        helper.make_node("Pow", ["chosen", "two"], ["squared"]),
        helper.make_node("ReduceSum", ["squared", "axes"], ["sum"], keepdims=0),
        helper.make_node("Sqrt", ["sum"], ["length"]),
    ]
    graph = helper.make_graph(
        nodes, "odds_and_ends", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("length", TensorProto.FLOAT, ["batch"]),
         helper.make_tensor_value_info("place", TensorProto.INT64, ["batch"]),
         helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["batch", None])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def record(folder, name, inputs, make):
    path = folder / f"{name}.onnx"
    make(str(path))
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    for node in model.graph.node:  # where the exporter ran
        node.doc_string = ""
        del node.metadata_props[:]
    del model.graph.value_info[:]
    del model.metadata_props[:]
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = dict(zip(names, inputs, strict=True))
    results = dict(zip([value.name for value in session.get_outputs()], session.run(None, feed), strict=True))
    fixture_files.write_tensors(folder / f"{name}.safetensors", feed | {f"output/{key}": value for key, value in results.items()})
    print(f"{name}: {path.stat().st_size} bytes, {sorted({node.op_type for node in model.graph.node})}")


def main(folder):
    folder.mkdir(exist_ok=True)
    images = rng.normal(size=(3, 3, 9, 8)).astype(np.float32)
    small = rng.normal(size=(4, 2, 12)).astype(np.float32)
    tokens = rng.integers(0, 11, size=(2, 6), dtype=np.int64)
    for name, module, x, exports in (
            ("cnn", Cnn(), images, ((False, 13), (True, 18))),
            ("mlp", Mlp(), small, ((False, 13), (False, 17), (True, 18), (True, 20), (True, 21))),
            ("residual", Residual(), images, ((False, 15), (True, 18))),
            ("block", Block(), tokens, ((False, 14), (True, 18)))):
        for dynamo, opset in exports:
            record(folder, f"{name}_{'dynamo' if dynamo else 'script'}_{opset}", [x],
                   lambda path, m=module, x=x, d=dynamo, o=opset: from_torch(m, (torch.from_numpy(x),), path, d, o))
    record(folder, "odds_and_ends", [rng.normal(size=(5, 6)).astype(np.float32)], from_nodes)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "onnx_models")
