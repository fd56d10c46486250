"""keras.backend and keras.config: defaults that all of Keras goes by, and questions about dtypes."""

import contextlib

from .. import _lockstep, dtypes
from .._lockstep import KerasTensor
from ._lambdas import enable_unsafe_deserialization  # noqa: F401

_settings = {"epsilon": 1e-7, "image_data_format": "channels_last", "interactive": True, "filtering": False, "flash_attention": None}


_BACKEND = ["lockstep"]


def backend():
    """What computes: "lockstep"; "tensorflow" in scripts that python -m lockstep runs, which may ask what their functions are of."""
    return _BACKEND[0]


def floatx():
    """The dtype of layers that are given none: that of the global policy's weights."""
    name = _lockstep.global_policy()
    return "float32" if name.startswith("mixed_") else name


def set_floatx(value):
    """float16, bfloat16, float32 or float64."""
    if value not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"floatx is float16, bfloat16, float32 or float64, received {value!r}")
    _lockstep.set_global_policy(value)


def epsilon():
    """A small number that keeps divisions from zero."""
    return _settings["epsilon"]


def set_epsilon(value):
    """For what asks for epsilon(); layers have their own."""
    _settings["epsilon"] = float(value)


def image_data_format():
    """Where the channels of images are."""
    return _settings["image_data_format"]


def set_image_data_format(data_format):
    """The default of layers and ops that are told none."""
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"data_format is channels_last or channels_first, received {data_format!r}")
    _settings["image_data_format"] = data_format


def standardize_data_format(data_format):
    """The format, or the default for None."""
    if data_format is None:
        return image_data_format()
    if str(data_format).lower() not in ("channels_last", "channels_first"):
        raise ValueError(f"data_format is channels_last or channels_first, received {data_format!r}")
    return str(data_format).lower()


def clear_session(free_memory=True):
    """Names of layers begin anew; nothing else is kept in a session."""
    _lockstep.clear_session()


def get_value(x):
    return x.numpy()


def set_value(x, value):
    x.assign(value)


def learning_phase():
    return 0


def is_keras_tensor(x):
    """Whether it is a value of a model that is being put together."""
    return isinstance(x, KerasTensor)


# --- dtypes --------------------------------------------------------------------------------------------------------------

def standardize_dtype(dtype):
    """The name of a dtype; None: floatx()."""
    if dtype is None:
        return floatx()
    if dtype == dtypes.string:
        return "string"
    if hasattr(dtype, "name") and isinstance(dtype.name, str) and not isinstance(dtype, dtypes.DType):
        dtype = dtype.name
    try:
        return dtypes.as_dtype(dtype).name
    except TypeError:
        raise ValueError(f"there is no dtype {dtype!r}; there are {', '.join(known.name for known in dtypes.ALL)}") from None


def is_float_dtype(dtype):
    return dtypes.as_dtype(standardize_dtype(dtype)).is_floating


def is_int_dtype(dtype):
    return dtypes.as_dtype(standardize_dtype(dtype)).is_integer


_ORDER = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")


def result_type(*given):
    """The dtype of an op of these: numbers of Python take the dtype of the tensors, integers become floats beside floats."""
    typed, kinds = [], set()
    for one in given:
        if one in (float, int, bool) or one is None:
            kinds.add(float if one is None else one)
        else:
            typed.append(standardize_dtype(getattr(one, "dtype", one)))
    if not typed:
        return floatx() if float in kinds else "int32" if int in kinds else "bool"
    result = typed[0]
    for other in typed[1:]:
        result = _joined(result, other)
    if float in kinds and not is_float_dtype(result):
        return floatx()
    if int in kinds and result == "bool":
        return "int32"
    return result


def _joined(a, b):
    if a == b:
        return a
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if "bfloat16" in (a, b):
        other = b if a == "bfloat16" else a
        return other if other in ("float32", "float64") else "bfloat16"
    return a if _ORDER.index(a) > _ORDER.index(b) else b


# --- what shows ----------------------------------------------------------------------------------------------------------

def enable_interactive_logging():
    _settings["interactive"] = True


def disable_interactive_logging():
    _settings["interactive"] = False


def is_interactive_logging_enabled():
    return _settings["interactive"]


def enable_traceback_filtering():
    _settings["filtering"] = True


def disable_traceback_filtering():
    _settings["filtering"] = False


def is_traceback_filtering_enabled():
    return _settings["filtering"]


def enable_flash_attention():
    """Attention is computed in blocks, without the matrix of scores, wherever nobody asks for the scores: asking for it is allowed."""
    _settings["flash_attention"] = True


def disable_flash_attention():
    """For scripts that say so; the engine computes as it sees fit."""
    _settings["flash_attention"] = False


def is_flash_attention_enabled():
    """What was said last."""
    return _settings["flash_attention"]


def enable_unsafe_deserialization():
    """Files hold no code here, so that there is nothing to allow."""


def dtype_policy():
    from . import DTypePolicy
    return DTypePolicy(_lockstep.global_policy())


def set_dtype_policy(policy):
    _lockstep.set_global_policy(getattr(policy, "name", policy))


@contextlib.contextmanager
def name_scope(name, caller=None):
    """Names follow from layers; the scope is there for scripts that open one."""
    if not name or not isinstance(name, str) or "/" in name:
        raise ValueError(f"name_scope: a name is a text without \"/\", received {name!r}")
    yield

