"""tf.config: which devices there are, which of them a program uses, and how."""

import collections

from . import _lockstep, _names

_config = _lockstep.config

PhysicalDevice = collections.namedtuple("PhysicalDevice", "name device_type")
LogicalDevice = collections.namedtuple("LogicalDevice", "name device_type")


class LogicalDeviceConfiguration(collections.namedtuple("LogicalDeviceConfiguration", "memory_limit threads")):
    """A part of a physical device: megabytes of a GPU, threads of a CPU (Lockstep's own)."""

    def __new__(cls, memory_limit=None, experimental_priority=None, experimental_device_ordinal=None, threads=0):
        return super().__new__(cls, memory_limit, threads)


def list_physical_devices(device_type=None):
    """What the machine has."""
    return [PhysicalDevice(*names) for names in _config.list_physical_devices(device_type or "")]


def list_logical_devices(device_type=None):
    """What is made of the visible ones. From then on they cannot change."""
    return [LogicalDevice(*names) for names in _config.list_logical_devices(device_type or "")]


def get_visible_devices(device_type=None):
    """The physical devices that are used."""
    return [PhysicalDevice(*names) for names in _config.get_visible_devices(device_type or "")]


def set_visible_devices(devices, device_type=None):
    """Only these are used."""
    _config.set_visible_devices([devices] if isinstance(devices, PhysicalDevice) else list(devices), device_type or "")


def set_logical_device_configuration(device, logical_devices):
    """Splits a physical device into as many as there are configurations."""
    _config.set_logical_device_configuration(device, [(part.memory_limit or 0, part.threads) for part in logical_devices])


def get_logical_device_configuration(device):
    """How a physical device is split."""
    return [LogicalDeviceConfiguration(memory or None, threads=threads)
            for memory, threads in _config.get_logical_device_configuration(device)]


def set_logical_cpus(count, threads=0):
    """Splits the CPU into so many logical devices. Lockstep's own."""
    _lockstep.set_logical_cpus(count, threads)


run_functions_eagerly = _config.run_functions_eagerly
functions_run_eagerly = _config.functions_run_eagerly
experimental_run_functions_eagerly, experimental_functions_run_eagerly = run_functions_eagerly, functions_run_eagerly
set_soft_device_placement = _config.set_soft_device_placement
get_soft_device_placement = _config.get_soft_device_placement


class threading(metaclass=_names.Namespace):
    """Threads of kernels."""
    set_intra_op_parallelism_threads = staticmethod(_config.set_intra_op_parallelism_threads)
    get_intra_op_parallelism_threads = staticmethod(_config.get_intra_op_parallelism_threads)
    set_inter_op_parallelism_threads = staticmethod(_config.set_inter_op_parallelism_threads)
    get_inter_op_parallelism_threads = staticmethod(_config.get_inter_op_parallelism_threads)


class optimizer(metaclass=_names.Namespace):
    """Of graphs: kept, and without effect."""

    _options = {}

    @staticmethod
    def set_jit(enabled):
        """Functions are always compiled."""

    @classmethod
    def set_experimental_options(cls, options):
        """What graphs are rewritten by: kept, and without effect. explain() of a function says what became of it."""
        cls._options = {**cls._options, **options}

    @classmethod
    def get_experimental_options(cls):
        """What was set."""
        return dict(cls._options)


class experimental(metaclass=_names.Namespace):
    """Names from before these were settled."""
    list_physical_devices = staticmethod(list_physical_devices)
    list_logical_devices = staticmethod(list_logical_devices)
    get_visible_devices = staticmethod(get_visible_devices)
    set_visible_devices = staticmethod(set_visible_devices)
    get_memory_info = staticmethod(_config.get_memory_info)
    reset_memory_stats = staticmethod(_config.reset_memory_stats)
    get_device_details = staticmethod(_config.get_device_details)
    set_virtual_device_configuration = staticmethod(set_logical_device_configuration)
    get_virtual_device_configuration = staticmethod(get_logical_device_configuration)
    VirtualDeviceConfiguration = LogicalDeviceConfiguration
    enable_tensor_float_32_execution = staticmethod(_config.enable_tensor_float_32_execution)
    tensor_float_32_execution_enabled = staticmethod(_config.tensor_float_32_execution_enabled)

    @staticmethod
    def set_memory_growth(device, enable):
        """Whether a GPU takes memory as it is needed, as it does unless told otherwise."""
        _config.set_memory_growth(device, bool(enable))

    @staticmethod
    def get_memory_usage(device):
        """How many bytes of a device are in use."""
        return _config.get_memory_info(device)["current"]

    @staticmethod
    def get_memory_growth(device):
        return _config.get_memory_growth(device)

    @staticmethod
    def enable_op_determinism():
        """The default here: every run gives the same bits; strategies of several devices take reproducible=True."""
        _config.enable_op_determinism(True)

    @staticmethod
    def disable_op_determinism():
        """Kernels may add up in another order every time where that is faster, as TensorFlow's do unless told otherwise.

        So do gradients of attention in 16-bit floats on a GPU. For what is compiled from now on."""
        _config.enable_op_determinism(False)


class device:
    """``with tf.device("/CPU:1"):`` runs ops and makes tensors, variables and layers there."""

    def __init__(self, device_name):
        self._context = _lockstep.DeviceContext(getattr(device_name, "name", device_name)) if device_name else None

    def __enter__(self):
        if self._context:
            self._context.enter()
        return self

    def __exit__(self, *_):
        if self._context:
            self._context.exit()
