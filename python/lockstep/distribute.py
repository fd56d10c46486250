"""tf.distribute: on which devices a training step runs, where variables live, how replicas are joined."""

import collections
import enum

from . import _lockstep, _names, _tracing, data, nest
from ._lockstep import Distributed as _Distributed
from .function import untraced
from .tensor import convert_to_tensor, is_tensor


class ReduceOp(enum.Enum):
    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def _name(op):
        name = op.value if isinstance(op, ReduceOp) else str(op)
        if name.upper() not in ("SUM", "MEAN"):
            raise ValueError(f"a reduction is SUM or MEAN, received {op!r}")
        return name.upper()


class _CrossDeviceOps:
    """Who adds up what the devices hold."""
    number = 0

    def __init__(self, num_packs=1, *_, **__):
        pass


class NcclAllReduce(_CrossDeviceOps):
    number = 5


class HierarchicalCopyAllReduce(_CrossDeviceOps):
    number = 2


class ReductionToOneDevice(_CrossDeviceOps):
    number = 3


class experimental(metaclass=_names.Namespace):
    """Names from before these were settled."""

    class CommunicationImplementation(enum.Enum):
        AUTO = 0
        RING = 1
        GLOO = 1
        MPI = 2
        NCCL = 3

    class CommunicationOptions:
        def __init__(self, bytes_per_pack=0, timeout_seconds=None, implementation=None):
            self.timeout_seconds = timeout_seconds
            self.implementation = implementation or experimental.CommunicationImplementation.AUTO

    CollectiveCommunication = CommunicationImplementation


CommunicationImplementation = experimental.CommunicationImplementation
CommunicationOptions = experimental.CommunicationOptions

# One tensor per replica: what run() returns, and what a distributed dataset gives.
DistributedValues = _Distributed
_Distributed._defers_tensor_operators = True
_Distributed.__str__ = _Distributed.__repr__
_Distributed.__doc__ = "One tensor per replica."


def _refused(self, *_):
    raise TypeError("a value of several replicas is no tensor: strategy.reduce(op, value, axis) joins it, value.values has the "
                    "tensors, strategy.experimental_local_results(value) too")


_Distributed.numpy = _Distributed.__float__ = _Distributed.__add__ = _Distributed.__array__ = _refused


class InputReplicationMode(enum.Enum):
    """Whether workers or replicas have pipelines of their own."""
    PER_WORKER, PER_REPLICA = "PER_WORKER", "PER_REPLICA"


class InputOptions(collections.namedtuple("InputOptions", "experimental_fetch_to_device experimental_replication_mode "
                                          "experimental_place_dataset_on_device experimental_per_replica_buffer_size",
                                          defaults=(None, InputReplicationMode.PER_WORKER, False, 1))):
    """How batches get to devices: they are always fetched ahead, for all replicas of a worker together."""

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls, *args, **kwargs)
        if made.experimental_replication_mode is not InputReplicationMode.PER_WORKER or made.experimental_place_dataset_on_device:
            raise NotImplementedError("InputOptions: a worker has one pipeline, on the host")
        return made


class RunOptions(collections.namedtuple("RunOptions", "experimental_enable_dynamic_batch_size experimental_bucketizing_dynamic_shape "
                                        "experimental_xla_options", defaults=(True, False, None))):
    """How strategy.run() runs a function: every signature is compiled once."""


class InputContext:
    """What a function that makes datasets is told."""

    def __init__(self, num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1):
        self.num_input_pipelines = num_input_pipelines
        self.input_pipeline_id = input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size):
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(f"a batch of {global_batch_size} does not divide by {self.num_replicas_in_sync} replicas")
        return global_batch_size // self.num_replicas_in_sync


class DistributedDataset:
    """Global batches, cut for the replicas."""

    def __init__(self, strategy, handle):
        self._strategy, self._handle = strategy, handle

    def __iter__(self):
        return _Batches(self._strategy, self._handle.iterator())

    def __len__(self):
        count = self._handle.cardinality()
        if count < 0:
            raise TypeError("how long the dataset is is not known")
        return count

    @property
    def element_spec(self):
        return data.Dataset(self._handle.dataset()).element_spec


class _Batches:
    def __init__(self, strategy, iterator):
        self._strategy, self._iterator = strategy, iterator

    def __iter__(self):
        return self

    def __next__(self):
        _tracing.refuse("next() of an iterator")
        return self._strategy._as_given(next(self._iterator))

    def get_next(self):
        return next(self)

    def get_next_as_optional(self):
        """The next batch, or that there is none."""
        return data.Optional(self)


untraced(DistributedDataset, _Batches)


class _Scope:
    def __init__(self, strategy):
        self._strategy, self._context = strategy, strategy._handle.scope()

    def __enter__(self):
        self._context.enter()
        _scopes.append(self._strategy)
        return self._strategy

    def __exit__(self, *_):
        _scopes.pop()
        self._context.exit()


_scopes = []


def _as_rows(numbers):
    """A number of each replica as one row of each: the engine cuts batches."""
    return _Distributed.of([_lockstep.ops.reshape(value, [1]) for value in numbers.values])


class Strategy:
    """Devices, and how a step runs on all of them."""

    def __init__(self, handle=None):
        self._handle = handle if handle is not None else _lockstep.Strategy()

    def scope(self):
        """``with strategy.scope():`` what is made inside lives on every device."""
        return _Scope(self)

    @property
    def num_replicas_in_sync(self):
        """Replicas that a batch is cut for, those of all workers."""
        return self._handle.num_replicas_in_sync

    @property
    def devices(self):
        """The names of its devices. Lockstep's own."""
        return self._handle.devices

    @property
    def extended(self):
        return self

    @property
    def worker_devices(self):
        return tuple(self._handle.devices)

    def run(self, fn, args=(), kwargs=None, options=None):
        """fn on every replica with its parts of what is distributed. It is traced, and runs compiled."""
        _tracing.refuse("strategy.run()")
        kwargs = kwargs or {}
        leaves = nest.flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, _Distributed) or is_tensor(leaf)]
        places = [i for i in places if not isinstance(leaves[i], _lockstep.Variable)]
        scalars = {i for i in places if isinstance(leaves[i], _Distributed) and leaves[i].values[0].ndim == 0}
        result = []

        def body(tensors):
            values = list(leaves)
            for place, value in zip(places, tensors):
                values[place] = _lockstep.ops.reshape(value, []) if place in scalars else value
            own_args, own_kwargs = nest.pack_sequence_as((args, kwargs), values)
            with _tracing.Tracing():
                returned = fn(*own_args, **own_kwargs)
            result[:] = [returned]
            return [convert_to_tensor(leaf) for leaf in nest.flatten(returned) if leaf is not None]
        parts = iter(self._handle.run(body, [_as_rows(leaves[place]) if place in scalars else leaves[place] for place in places]))
        returned = result[0]
        if not nest.is_nested(returned):
            return None if returned is None else self._as_given(next(parts))
        return nest.map_structure(lambda leaf: None if leaf is None else self._as_given(next(parts)), returned)

    def _as_given(self, value):
        """With one replica there is nothing to tell apart."""
        if self._handle.num_replicas_in_sync > 1:
            return value
        return nest.map_structure(lambda leaf: leaf.values[0] if isinstance(leaf, _Distributed) else leaf, value)

    def _distributed(self, value):
        if isinstance(value, _Distributed):
            return value
        return _Distributed.of([convert_to_tensor(value)])

    def reduce(self, reduce_op, value, axis=None):
        """Over the replicas and, where an axis is given, over that dimension of each."""
        return nest.map_structure(lambda leaf: self._handle.reduce(ReduceOp._name(reduce_op), self._distributed(leaf), axis), value)

    def gather(self, value, axis):
        """Joined along a dimension."""
        return self._handle.gather(self._distributed(value), axis)

    def experimental_distribute_dataset(self, dataset, options=None):
        """The dataset's batches are global ones: every replica gets its part."""
        return DistributedDataset(self, self._handle.distribute_dataset(dataset._handle))

    def distribute_datasets_from_function(self, dataset_fn, options=None):
        """dataset_fn's batches are those of one replica."""
        return DistributedDataset(self, self._handle.distribute_datasets_from_function(
            lambda pipelines, number, replicas: dataset_fn(InputContext(pipelines, number, replicas))._handle))

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn):
        """What value_fn gives for each replica."""
        values = [convert_to_tensor(value_fn(ValueContext(i, self.num_replicas_in_sync))) for i in range(self.num_replicas_in_sync)]
        return self._as_given(_Distributed.of(values))

    def experimental_local_results(self, value):
        """The values of this process' replicas, as a tuple."""
        return value.values if isinstance(value, _Distributed) else (value,)

    def distribute(self, batch):
        """A batch, cut as the replicas get it. Lockstep's own."""
        return nest.map_structure(lambda leaf: self._as_given(self._handle.distribute(convert_to_tensor(leaf))), batch)

    def adopt(self, *objects):
        """Makes what was made elsewhere this strategy's own: models, layers, variables. Lockstep's own."""
        for one in objects:
            if isinstance(one, _lockstep.Variable):
                self._handle.adopt_variables([one])
            else:
                self._handle.adopt_layer(one._handle)

    def report(self):
        """Where the time of a loop over run() went. Lockstep's own."""
        return self._handle.report()

    @property
    def cluster_resolver(self):
        return _ClusterResolver(self._handle)

    def __eq__(self, other):
        return isinstance(other, Strategy) and self._handle == other._handle

    def __hash__(self):
        return hash(tuple(self._handle.devices))

    def __repr__(self):
        return f"<{self._handle.description}>"


class _ClusterResolver:
    def __init__(self, handle):
        self.task_type = "worker"
        self.task_id = handle.worker

    def num_accelerators(self):
        return {"GPU": 0}


class ValueContext:
    """Which replica a value is made for."""

    def __init__(self, replica_id_in_sync_group=0, num_replicas_in_sync=1):
        self.replica_id_in_sync_group = replica_id_in_sync_group
        self.num_replicas_in_sync = num_replicas_in_sync


def _names_of(devices):
    if devices is None:
        return []
    return [getattr(device, "name", device) for device in ([devices] if isinstance(devices, str) else devices)]


def _options(cross_device_ops=None, own=None):
    options = dict(own or {})
    if cross_device_ops is not None:
        options["cross_device_ops"] = cross_device_ops.number
    return options


class MirroredStrategy(Strategy):
    """A copy of every variable on every device; gradients are summed over all.

    Lockstep's own options: reproducible, virtual_replicas, weights, bucket_bytes, report.
    """

    def __init__(self, devices=None, cross_device_ops=None, **own):
        super().__init__(_lockstep.Strategy.mirrored(_names_of(devices), _options(cross_device_ops, own)))


class OneDeviceStrategy(Strategy):
    """On this device, as if there were no strategy but with the same code."""

    def __init__(self, device, **own):
        super().__init__(_lockstep.Strategy.one_device(getattr(device, "name", device), _options(own=own)))


class CentralStorageStrategy(Strategy):
    """Variables on the CPU (or the one GPU) alone; all devices compute."""

    def __init__(self, compute_devices=None, parameter_device=None, **own):
        super().__init__(_lockstep.Strategy.central_storage(_names_of(compute_devices), _options(own=own)))


experimental.CentralStorageStrategy = CentralStorageStrategy


class MultiWorkerMirroredStrategy(Strategy):
    """MirroredStrategy over the processes of a run, which TF_CONFIG, mpirun, srun or lockstep launch describe."""

    def __init__(self, cluster_resolver=None, communication_options=None, **own):
        if communication_options is not None:
            own["implementation"] = communication_options.implementation.value
            if communication_options.timeout_seconds:
                own["timeout_seconds"] = float(communication_options.timeout_seconds)
        super().__init__(_lockstep.Strategy.multi_worker_mirrored(_options(own=own)))


experimental.MultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy


def TPUStrategy(*_, **__):
    raise NotImplementedError("TPUStrategy: there are no TPUs here; MirroredStrategy uses all GPUs, else all logical CPU devices")


def ParameterServerStrategy(*_, **__):
    raise NotImplementedError("ParameterServerStrategy: workers train in lockstep; MultiWorkerMirroredStrategy sums gradients "
                              "over them, CentralStorageStrategy keeps variables in one place")


class ReplicaContext:
    """What a function sees of the replica that it runs as."""

    @property
    def replica_id_in_sync_group(self):
        return _lockstep.replica_id()

    @property
    def num_replicas_in_sync(self):
        return _lockstep.num_replicas_in_sync()

    @property
    def strategy(self):
        return get_strategy()

    def all_reduce(self, reduce_op, value, options=None):
        return nest.map_structure(lambda leaf: _lockstep.all_reduce(ReduceOp._name(reduce_op), leaf), value)


def get_replica_context():
    """Inside of run(): which replica this is."""
    return ReplicaContext()


def get_strategy():
    """That of the scope around the call; the default strategy outside of all."""
    return _scopes[-1] if _scopes else Strategy(_lockstep.Strategy.current())


def has_strategy():
    return not _lockstep.Strategy.current().is_default


def in_cross_replica_context():
    return True


class cluster_resolver(metaclass=_names.Namespace):
    """Who is in a run follows from TF_CONFIG."""

    class TFConfigClusterResolver:
        pass
