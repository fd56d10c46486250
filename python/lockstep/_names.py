"""What is said of a name of TensorFlow's that does not exist here."""

import difflib
import types

_DTYPES = "there are float16, bfloat16, float32, float64, int32, int64, uint8 and bool"
# Names that people try, and what to use in their place.
_INSTEAD = {
    "placeholder": "there are no graphs with sessions: write a function of tensors, @tf.function compiles it",
    "Session": "there are no graphs with sessions: values are computed at once, @tf.function compiles",
    "v1": "there is no TensorFlow 1: tf.function, tf.Variable and tf.keras take its place",
    "contrib": "there is no TensorFlow 1",
    "estimator": "there are no estimators: tf.keras takes their place",
    "feature_column": "there are no feature columns: layers of tf.keras.layers (Normalization, CategoryEncoding) prepare data",
    "lite": "models are not exported to TensorFlow Lite",
    "saved_model": "there is no SavedModel: model.save(path.keras) keeps a model, model.export(path, format=\"onnx\") writes ONNX",
    "tpu": "there are no TPUs here",
    "sparse": "there are no sparse tensors",
    "ragged": "there are no ragged tensors: rows have one length, padded_batch fills them up",
    "RaggedTensor": "there are no ragged tensors: rows have one length, padded_batch fills them up",
    "SparseTensor": "there are no sparse tensors",
    "complex64": "there are no complex tensors", "complex128": "there are no complex tensors", "complex": "there are no complex tensors",
    "int8": _DTYPES, "int16": _DTYPES, "uint16": _DTYPES, "uint32": _DTYPES, "uint64": _DTYPES,
    "profiler": "fit(), strategies and scripts end with a report of where the time went; tf.report() is that of a loop of one's own",
    "ImageDataGenerator": "keras.utils.image_dataset_from_directory reads folders; the layers RandomFlip, RandomRotation, RandomZoom and Rescaling "
                          "change images",
    "parse_sequence_example": "tf.io.parse_single_example reads examples, which have no context",
    "trace_on": "functions explain themselves: function.explain(*args) lists what runs, function.report() where the time went",
    "py_func": "tf.py_function and tf.numpy_function",
    "signal": "there is no Fourier transform among the ops",
    "Graph": "there are no graphs with sessions: @tf.function compiles a function",
}


def missing(module, name, there):
    """The exception for a name that a module does not have."""
    if name.startswith("__"):
        return AttributeError(name)
    text = f"module {module!r} has no attribute {name!r}"
    if name in _INSTEAD:
        return AttributeError(f"{text} in Lockstep: {_INSTEAD[name]}")
    ours = [key for key, value in there.items() if not key.startswith("_") and not _is_foreign(value)]
    near = difflib.get_close_matches(name, ours, 1)
    return AttributeError(f"{text} in Lockstep" + (f"; did you mean {near[0]!r}?" if near else ""))


def _is_foreign(value):
    """Whether a value among a module's names is a module of another package, which it imports for itself."""
    return isinstance(value, types.ModuleType) and not value.__name__.startswith("lockstep")


def explain(module):
    """Makes a module say what there is in place of a name that it does not have."""
    name = module.__name__.partition(".")[2]
    name = name if name.startswith("keras") else "tensorflow." + name

    def of_module(missing_name):
        raise missing(name, missing_name, vars(module))
    module.__getattr__ = of_module


class Namespace(type):
    """Of classes that stand for modules: they say the same."""

    def __getattr__(cls, name):
        raise missing(f"tensorflow.{cls.__name__}", name, vars(cls))
