"""Compiled functions, gradient tapes, control flow."""

import functools
import inspect
import warnings
import weakref

from . import _lockstep, _tracing, nest
from ._lockstep import Tensor, Variable
from ._texts import Texts
from .dtypes import int32
from .tensor import TensorSpec, convert_to_tensor, is_tensor


# --- gradients -----------------------------------------------------------------------------------------------------------

class UnconnectedGradients:
    """What a source that the target does not depend on gets."""
    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Records ops between ``with`` and its end, and differentiates what was recorded."""

    def __init__(self, persistent=False, watch_accessed_variables=True):
        self._options = (bool(persistent), bool(watch_accessed_variables))
        self._tape = None

    def __enter__(self):
        self._tape = _lockstep.GradientTape(*self._options)
        return self

    def __exit__(self, *_):
        self._tape.stop_recording()

    def _recorded(self):
        if self._tape is None:
            raise RuntimeError("the tape has recorded nothing: use it as  with tf.GradientTape() as tape:")
        return self._tape

    def watch(self, tensor):
        """Records what is done with a tensor, or with all of a structure."""
        for one in nest.flatten(tensor):
            if not one.dtype.is_floating:
                warnings.warn(f"a tape watches tensors of floating point numbers, not of {one.dtype.name}: its gradient is None", stacklevel=2)
                continue
            self._recorded().watch(one)

    def gradient(self, target, sources, output_gradients=None, unconnected_gradients=UnconnectedGradients.NONE):
        """d sum(target) / d source for every source, in a structure like that of the sources."""
        targets = [t if is_tensor(t) else convert_to_tensor(t) for t in nest.flatten(target)]
        flat = nest.flatten(sources)
        for source in flat:
            if not is_tensor(source):
                raise TypeError(f"gradient: a source is a tensor or a variable, received {source!r}")
        arriving = nest.flatten(output_gradients) if output_gradients is not None else [None] * len(targets)
        gradients = self._recorded().gradient(targets, flat, arriving)
        if unconnected_gradients in ("zero", UnconnectedGradients.ZERO):
            gradients = [_lockstep.ops.zeros_like(s) if g is None else g for g, s in zip(gradients, flat)]
        return nest.pack_sequence_as(sources, gradients) if nest.is_nested(sources) else gradients[0]

    def jacobian(self, target, sources, unconnected_gradients=UnconnectedGradients.NONE, parallel_iterations=None,
                 experimental_use_pfor=True):
        """d target[i] / d source[j], of shape target.shape + source.shape; zeros where target does not depend on source, whatever
        unconnected_gradients is."""
        flat = nest.flatten(sources)
        if len(flat) > 1 and not self._options[0]:
            raise RuntimeError("jacobian: of several sources it needs a tape that is persistent: tf.GradientTape(persistent=True)")
        made = [self._recorded().jacobian(target, source) for source in flat]
        return nest.pack_sequence_as(sources, made) if nest.is_nested(sources) else made[0]

    def batch_jacobian(self, target, source, unconnected_gradients=UnconnectedGradients.NONE, parallel_iterations=None,
                       experimental_use_pfor=True):
        """d target[b, i] / d source[b, j], of shape (batch,) + target.shape[1:] + source.shape[1:]: no example has a part in the results of
        another."""
        return self._recorded().batch_jacobian(target, source)

    def stop_recording(self):
        """``with tape.stop_recording():`` is not recorded."""
        return _NotRecorded(self)

    def reset(self):
        """Forgets what was recorded."""
        self._recorded().reset()

    def watched_variables(self):
        """The variables that were read while it recorded."""
        return tuple(self._recorded().watched_variables())


class _NotRecorded:
    def __init__(self, tape):
        self._tape = tape

    def __enter__(self):
        self._tape._recorded().pause()

    def __exit__(self, *_):
        self._tape._recorded().resume()


def gradients(ys, xs, *_, **__):
    raise NotImplementedError("tf.gradients works on graphs: use  with tf.GradientTape() as tape:  and tape.gradient(ys, xs)")


def custom_gradient(f):
    """A function that returns its result and how gradients go through it: ``return y, grad``."""
    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        tensors = [convert_to_tensor(arg) for arg in args]
        structure = []

        def run(inputs):
            result, grad = f(*inputs, **kwargs)
            structure.append(result)

            def back(output_gradients):
                given = grad(*output_gradients)
                return [None if g is None else g for g in (given if isinstance(given, (list, tuple)) else [given])]
            return [convert_to_tensor(leaf) for leaf in nest.flatten(result)], back
        flat = _lockstep.custom_gradient(run, tensors)
        return nest.pack_sequence_as(structure[-1], flat)
    return wrapped


def _recomputing(engine):
    """What makes a function that computes on the way again in the backward pass, by this function of the engine."""
    def made(f):
        @functools.wraps(f)
        def wrapped(*args, **kwargs):
            results = []

            def run():
                results.append(f(*args, **kwargs))
                return [convert_to_tensor(leaf) for leaf in nest.flatten(results[0])]
            flat = engine(run)
            return nest.pack_sequence_as(results[0], flat)
        return wrapped
    return made


def recompute_grad(f):
    """A function that keeps nothing of what it computes on the way for its gradient: it is computed again, memory for time."""
    return _recomputing(_lockstep.recompute_grad)(f)


# --- compiled functions --------------------------------------------------------------------------------------------------

def _is_leaf_tensor(value):
    import numpy as np
    return isinstance(value, (Tensor, np.ndarray, np.generic))


class _Traced:
    """One way to call a function: the values that are no tensors, and how all are nested."""

    def __init__(self, function, name, args, kwargs, leaves):
        self._structure = (args, kwargs)
        self._leaves = [None if _is_leaf_tensor(leaf) else leaf for leaf in leaves]
        self._positions = [i for i, leaf in enumerate(leaves) if _is_leaf_tensor(leaf)]
        self._function = function
        self._result = None
        # The engine calls back only while it is called from here: it need not keep this alive, and must not, for Python's
        # garbage collector does not see what the engine holds.
        itself = weakref.ref(self)
        self.engine = _lockstep.Function(lambda inputs: itself()._trace(inputs), name)

    def _trace(self, inputs):
        leaves = list(self._leaves)
        for position, value in zip(self._positions, inputs):
            leaves[position] = value
        args, kwargs = nest.pack_sequence_as(self._structure, leaves)
        with _tracing.Tracing():
            result = self._function(*args, **kwargs)
        flat = nest.flatten(result)
        self._result = nest.pack_sequence_as(result, [_Place if leaf is not None else None for leaf in flat]) \
            if nest.is_nested(result) else (_Place if result is not None else None)
        return [convert_to_tensor(leaf) for leaf in flat if leaf is not None]

    def __call__(self, leaves):
        whole = len(self._positions) == len(leaves)
        flat = self.engine(leaves if whole else [leaves[position] for position in self._positions])
        result = self._result
        if result is _Place:
            return flat[0]
        flat = iter(flat)
        if not nest.is_nested(result):
            return None
        return nest.map_structure(lambda place: next(flat) if place is _Place else None, result)


class _Place:
    """Where a tensor stands in the result."""


def _key(value):
    """What tells calls apart that need a trace of their own: everything but the tensors."""
    if _is_leaf_tensor(value):
        return Tensor
    if isinstance(value, Variable):
        return ("variable", value._id)
    if isinstance(value, (int, float, str, bytes, bool, type(None))):
        return (type(value), value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _skeleton(value):
    if isinstance(value, (tuple, list)):
        return (type(value), tuple(_skeleton(part) for part in value))
    if isinstance(value, dict):
        return (dict, tuple((key, _skeleton(part)) for key, part in sorted(value.items(), key=lambda item: str(item[0]))))
    return _key(value)


# What is read, cut for replicas or held outside of compiled programs: a function of these is called as it is written.
_UNTRACED = (_lockstep.Iterator, _lockstep.Distributed, Texts)


def untraced(*classes):
    """Objects of these classes, too."""
    global _UNTRACED
    _UNTRACED += classes


class Function:
    """A function of Python that is traced once for each signature of its arguments and compiled.

    What it does besides computing with tensors (printing, appending to lists) happens while it is traced. A branch or a loop
    over the value of a tensor is refused: tf.cond and tf.while_loop are part of the compiled program.

    A function that reads data (next() of an iterator, a loop over a dataset) or calls strategy.run(), which compiles what it runs, is
    called as it is written.
    """

    def __init__(self, python_function, name=None, input_signature=None, reduce_retracing=False):
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self._name = name or getattr(python_function, "__name__", "function")
        self.input_signature = input_signature
        self._traces = {}
        self._is_python = False  # it does what no trace can hold
        self._of_tensors = {}  # those of calls with so many tensors and nothing else

    def __get__(self, instance, owner=None):
        """As a method: every object has traces of its own."""
        if instance is None:
            return self
        name = f"_traced_{self._name}_{id(self)}"
        bound = instance.__dict__.get(name)
        if bound is None:
            bound = Function(self.python_function.__get__(instance, owner), self._name, self.input_signature)
            instance.__dict__[name] = bound
        return bound

    def _find(self, args, kwargs, leaves=None):
        if self.input_signature is not None:
            args = tuple(_as_specified(value, spec) for value, spec in zip(args, self.input_signature)) + \
                args[len(self.input_signature):]
            leaves = None
        leaves = nest.flatten((args, kwargs)) if leaves is None else leaves
        key = _skeleton((args, kwargs))
        found = self._traces.get(key)
        if found is None:
            found = self._traces[key] = _Traced(self.python_function, self._name, args, kwargs, leaves)
        return found, leaves

    def __call__(self, *args, **kwargs):
        plain = not kwargs and self.input_signature is None and all(type(arg) is Tensor for arg in args)
        found = self._of_tensors.get(len(args)) if plain else None
        if found is not None:
            return found(args)
        leaves = nest.flatten((args, kwargs))
        if self._is_python or any(isinstance(leaf, _UNTRACED) for leaf in leaves):
            return self.python_function(*args, **kwargs)
        found, leaves = self._find(args, kwargs, leaves)
        try:
            made = found(leaves)
        except _tracing.Untraceable:
            self._is_python = True
            self._traces.clear()
            return self.python_function(*args, **kwargs)
        if plain:
            self._of_tensors[len(args)] = found
        return made

    def experimental_get_tracing_count(self):
        """How often it was traced."""
        return sum(trace.engine.traces for trace in self._traces.values())

    def get_concrete_function(self, *args, **kwargs):
        """The function of tensors alone, with everything else as it is here; a program is compiled when it is called."""
        return _Concrete(self, args, kwargs) if args or kwargs else self

    def explain(self, *args, **kwargs):
        """The launches of the program for these arguments, for people."""
        found, leaves = self._find(args, kwargs)
        return found.engine.explain([leaves[position] for position in found._positions])

    def report(self):
        """Where the time of its calls went."""
        return "\n".join(trace.engine.report() for trace in self._traces.values())

    def __repr__(self):
        return f"<tf.function {self._name}{inspect.signature(self.python_function)}>"


class _Concrete:
    """A function whose arguments that are no tensors are known."""

    def __init__(self, function, args, kwargs):
        self._function, self._args = function, args
        self._kwargs = {name: value for name, value in kwargs.items() if not _is_open(value)}

    def __call__(self, *args, **kwargs):
        if len(args) < len(self._args):  # the tensors among them
            given = iter(args)
            args = [next(given, value) if _is_open(value) else value for value in self._args]
        return self._function(*args, **{**self._kwargs, **kwargs})

    def __getattr__(self, name):
        return getattr(self._function, name)


def _is_open(value):
    """Whether it stands for a tensor that a call gives."""
    return isinstance(value, TensorSpec) or _is_leaf_tensor(value)


def _as_specified(value, spec):
    if isinstance(spec, TensorSpec):
        value = convert_to_tensor(value) if is_tensor(value) else convert_to_tensor(value, spec.dtype)
        if value.dtype is not spec.dtype or not spec.shape.is_compatible_with(value.shape):
            raise TypeError(f"the function's input_signature says {spec}, received {TensorSpec.from_tensor(value)}")
    return value


def function(func=None, input_signature=None, autograph=True, jit_compile=None, reduce_retracing=False,
             experimental_implements=None, experimental_autograph_options=None, experimental_attributes=None,
             experimental_relax_shapes=None, experimental_compile=None, experimental_follow_type_hints=None):
    """Compiles a function: ``@tf.function``."""
    def made(f):
        return Function(f, input_signature=input_signature, reduce_retracing=reduce_retracing)
    return made if func is None else made(func)


# --- control flow --------------------------------------------------------------------------------------------------------

def _branch(fn, structures):
    def run(_):
        result = fn()
        structures.append(result)
        return [convert_to_tensor(leaf) for leaf in nest.flatten(result)]
    return run


def cond(pred, true_fn=None, false_fn=None, name=None):
    """What true_fn() returns where pred is true, else what false_fn() returns."""
    if isinstance(pred, bool):
        return true_fn() if pred else false_fn()
    structures = []
    flat = _lockstep.cond(pred, _branch(true_fn, structures), _branch(false_fn, structures))
    return nest.pack_sequence_as(structures[0], flat)


def case(pred_fn_pairs, default=None, exclusive=False, strict=False, name="case"):
    """What the function of the first predicate that is true returns; default() where none is. With exclusive=True, more than one predicate
    that is true is an error."""
    pairs = [(pred.deref() if hasattr(pred, "deref") else pred, function)
             for pred, function in (pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs)]
    if exclusive and len(pairs) > 1:
        from .debugging import assert_less_equal  # which stands on this module
        count = sum(_lockstep.ops.cast(convert_to_tensor(pred), int32) for pred, _ in pairs)
        assert_less_equal(count, 1, "case: exclusive=True, and more than one predicate is true:")
    if not pairs:
        return default()
    (pred, function), rest = pairs[0], pairs[1:]
    if not rest and default is None:  # the last one is taken for granted
        return function()
    return cond(pred, function, lambda: case(rest, default))


def switch_case(branch_index, branch_fns, default=None, name="switch_case"):
    """What the function of this number returns; default(), or the last one, where there is none of it."""
    pairs = sorted(branch_fns.items()) if isinstance(branch_fns, dict) else \
        [part if isinstance(part, tuple) else (number, part) for number, part in enumerate(branch_fns)]
    default = default or pairs[-1][1]
    return case([(_lockstep.ops.equal(branch_index, number), function) for number, function in pairs], default)


def while_loop(cond, body, loop_vars, shape_invariants=None, parallel_iterations=10, back_prop=True, swap_memory=False,
               maximum_iterations=None, name=None):
    """loop_vars = body(*loop_vars) while cond(*loop_vars) is true."""
    loop_vars = list(loop_vars) if isinstance(loop_vars, (list, tuple)) else [loop_vars]

    def values(flat):
        return nest.pack_sequence_as(loop_vars, flat)

    def step(flat):
        result = body(*values(flat))
        return [convert_to_tensor(leaf) for leaf in nest.flatten(list(result) if isinstance(result, (list, tuple)) else [result])]
    flat = _lockstep.while_loop(lambda flat: [convert_to_tensor(cond(*values(flat)))], step,
                                [convert_to_tensor(leaf) for leaf in nest.flatten(loop_vars)],
                                -1 if maximum_iterations is None else int(maximum_iterations))
    return values(flat)


def map_fn(fn, elems, dtype=None, parallel_iterations=None, back_prop=True, swap_memory=False, infer_shape=True, name=None,
           fn_output_signature=None):
    """fn of every part of the elems along their first axis, stacked."""
    structures = []

    def step(flat):
        result = fn(nest.pack_sequence_as(elems, flat) if nest.is_nested(elems) else flat[0])
        structures.append(result)
        return [convert_to_tensor(leaf) for leaf in nest.flatten(result)]
    flat = _lockstep.map_fn(step, [convert_to_tensor(leaf) for leaf in nest.flatten(elems)])
    return nest.pack_sequence_as(structures[0], flat)


def vectorized_map(fn, elems, fallback_to_while_loop=True, warn=True):
    """map_fn(fn, elems)."""
    return map_fn(fn, elems)


def scan(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True,
         reverse=False, name=None):
    """fn(fn(fn(initializer, elems[0]), elems[1]), ...) with every result on the way, stacked. Without an initializer it begins with the first
    of the elems, which is the first result, too."""
    if initializer is None:
        elems = nest.map_structure(convert_to_tensor, elems)
        first = nest.map_structure(lambda x: x[-1 if reverse else 0], elems)
        rest = nest.map_structure(lambda x: x[:-1] if reverse else x[1:], elems)
        made = scan(fn, rest, first, reverse=reverse)

        def joined(one, others):
            one = _lockstep.ops.expand_dims(one, 0)
            return _lockstep.ops.concat([others, one] if reverse else [one, others], 0)
        return nest.map_structure(joined, first, made)

    def step(carry, x):
        state = nest.pack_sequence_as(initializer, carry) if nest.is_nested(initializer) else carry[0]
        result = fn(state, nest.pack_sequence_as(elems, x) if nest.is_nested(elems) else x[0])
        flat = [convert_to_tensor(leaf) for leaf in nest.flatten(result)]
        return flat, flat
    _, ys = _lockstep.scan(step, [convert_to_tensor(leaf) for leaf in nest.flatten(initializer)],
                           [convert_to_tensor(leaf) for leaf in nest.flatten(elems)], reverse)
    return nest.pack_sequence_as(initializer, ys) if nest.is_nested(initializer) else ys[0]


def foldl(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    """The last of scan()."""
    return nest.map_structure(lambda ys: ys[-1], scan(fn, elems, initializer))


def foldr(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    """The last of scan() that begins at the end."""
    return nest.map_structure(lambda ys: ys[0], scan(fn, elems, initializer, reverse=True))


def grad_pass_through(f):
    """f with the gradient of the identity (a straight-through estimator)."""
    return custom_gradient(functools.wraps(f)(lambda *args, **kwargs: (f(*args, **kwargs), lambda *gradients: gradients)))
