"""Files of models between Lockstep's Python package and Keras, both ways.

    keras_files.py write FOLDER    makes models, trains them, writes them as .keras and .weights.h5 with what they predict
    keras_files.py read FOLDER     reads such files of the other: they predict the same, and go on training in the same way

The Python that runs it has one of the two; where it has both, Lockstep is meant.
"""

import os
import pathlib
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402

try:
    from lockstep import keras
except ImportError:
    import keras

layers, ops = keras.layers, keras.ops
TOLERANCE = 2e-5  # of the largest prediction
CASES = {}
registered = keras.saving.register_keras_serializable("Files")


def case(make):
    CASES[make.__name__] = make
    return make


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# --- what is written in Python -------------------------------------------------------------------------------------------

@registered
class Residual(keras.Model):
    """Layers in attributes, lists and dictionaries."""

    def __init__(self, units=4, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.first = layers.Dense(units, activation="relu")
        self.blocks = [layers.Dense(units), keras.Sequential([layers.Dense(units), layers.BatchNormalization()])]
        self.ends = {"mean": layers.Dense(2), "spread": layers.Dense(2, activation="softplus")}

    def call(self, x, training=False):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x, training=training) if isinstance(block, keras.Sequential) else x + block(x)
        return self.ends["mean"](x) + self.ends["spread"](x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@registered
class Mixed(layers.Layer):
    """Its inputs are nested in what it is called with."""

    def build(self, x_shape, others_shape):
        self.gain = self.add_weight(shape=(x_shape[-1],), initializer="random_normal", name="gain")
        self.moved = self.add_weight(shape=(others_shape["b"][-1],), initializer="random_normal", trainable=False, name="moved")

    def call(self, x, others, scale=2.0):
        return x * self.gain + others["b"] * scale - others["a"][0] * self.moved


@registered
class Scaled(layers.Dense):
    """One of the library's layers with another call()."""

    def __init__(self, units, scale=2.0, **kwargs):
        super().__init__(units, **kwargs)
        self.scale = scale

    def call(self, x):
        return super().call(x) * self.scale + ops.mean(self.kernel)

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


@registered
class Cell(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")
        self.built = True

    def call(self, inputs, states):
        h = ops.tanh(ops.matmul(inputs, self.kernel) + ops.matmul(states[0], self.recurrent))
        return h, [h]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@registered
class Kept(layers.Layer):
    """What it keeps in files is its own affair."""

    def __init__(self, words=(), **kwargs):
        super().__init__(**kwargs)
        self.words, self.spread = list(words), 0.5

    def build(self, input_shape):
        self.table = self.add_weight(shape=(input_shape[-1],), initializer="random_normal", name="table")

    def call(self, x):
        return x * self.table * self.spread + float(len(self.words))

    def get_build_config(self):
        return {"size": int(self.table.shape[0]), "spread": self.spread / 2.0}

    def build_from_config(self, config):
        self.spread = config["spread"] * 2.0
        self.build((None, config["size"]))

    def save_own_variables(self, store):
        store["table"] = ops.convert_to_numpy(self.table) * 4.0

    def load_own_variables(self, store):
        self.table.assign(store["table"][...] / 4.0)

    def save_assets(self, folder):
        pathlib.Path(folder, "words.txt").write_text("\n".join(self.words))

    def load_assets(self, folder):
        self.words = pathlib.Path(folder, "words.txt").read_text().split("\n")


@registered
class Compiled(keras.Model):
    """compile() takes what it likes. Of an optimizer that it makes anew Keras restores no state."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)

    def compile(self, rate, criterion):
        super().compile(keras.optimizers.SGD(rate), criterion)
        self.said = {"rate": rate, "criterion": criterion}

    def get_compile_config(self):
        return self.said

    def compile_from_config(self, config):
        self.compile(**keras.utils.deserialize_keras_object(config))


@registered
class Weighted(keras.losses.Loss):
    def __init__(self, weight=3.0, **kwargs):
        super().__init__(**kwargs)
        self.weight = weight

    def call(self, y_true, y_pred):
        return self.weight * ops.mean(ops.square(y_true - y_pred), axis=-1)

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


@registered
class Bounded(keras.constraints.Constraint):
    def __init__(self, limit=0.5):
        self.limit = limit

    def __call__(self, w):
        return ops.clip(w, -self.limit, self.limit)

    def get_config(self):
        return {"limit": self.limit}


@registered
class Slower(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate=0.1):
        self.rate = rate

    def __call__(self, step):
        return self.rate / (1.0 + ops.cast(step, "float32"))

    def get_config(self):
        return {"rate": self.rate}


@registered
def doubled_relu(x):
    return ops.relu(x) * 2.0


# --- the models ----------------------------------------------------------------------------------------------------------

@case
def sequential():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="relu", kernel_regularizer="l2"), layers.BatchNormalization(),
                              layers.Dense(3, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, numbers(12, 4), np.arange(12) % 3


@case
def ops_between_layers():
    x, y = keras.Input((6, 4), name="left"), keras.Input((6, 4), name="right")
    a = layers.Dense(4)(ops.concatenate([x, 2.0 * y], axis=-1))
    b = ops.where(a > 0.0, a, ops.expm1(-abs(x - y)))[:, 1:, ::2]
    c = ops.reshape(b, (-1, 10)) / ops.expand_dims(1.0 + ops.sum(ops.square(x), axis=(1, 2)), -1)
    made = layers.Dense(2)(keras.activations.gelu(c) + ops.max(ops.softmax(c), axis=-1, keepdims=True))
    model = keras.Model([x, y], [made, ops.mean(y, axis=1)])
    model.compile("sgd", ["mse", "mae"])
    return model, [numbers(8, 6, 4), numbers(8, 6, 4, seed=1)], [numbers(8, 2), numbers(8, 4)]


def of_ops(make, inputs=1):
    given = [keras.Input((4, 6), name=f"x{i}") for i in range(inputs)]
    return keras.Model(given, make(*given)), [numbers(5, 4, 6, seed=i) for i in range(inputs)], None


for _name, _make, *_inputs in [
        ("arithmetic", lambda x, y: 1 / (abs(x) + 2.0 * y ** 2 + 0.5) - x % 3.0, 2), ("comparisons", lambda x, y: (x > y) | (x <= -y), 2),
        ("items", lambda x: x[:, 1:3, ..., None]), ("an_item", lambda x: x[:, -1]), ("split", lambda x: ops.split(x, 3, axis=-1)),
        ("stack", lambda x, y: ops.stack([x, y], axis=1), 2), ("einsum", lambda x, y: ops.einsum("bij,bkj->bik", x, y), 2),
        ("cast", lambda x: ops.cast(x > 0, "float16")), ("constant", lambda x: ops.matmul(x, np.arange(12.0, dtype="float32").reshape(6, 2))),
        ("one_hot", lambda x: ops.one_hot(ops.argmax(x, axis=-1), 6)), ("activations", lambda x: keras.activations.relu(
            keras.activations.gelu(x), negative_slope=0.5, max_value=1.0)),
        ("average", lambda x, y: ops.average(x, axis=1, weights=y ** 2), 2), ("normalize", lambda x: ops.normalize(x, order=1)),
        ("attention", lambda x, y: ops.dot_product_attention(x[..., None], y[..., None], x[..., None], is_causal=True), 2),
        ("shapes", lambda x: ops.transpose(ops.squeeze(ops.expand_dims(ops.tile(x, (1, 2, 1)), 2), 2), (0, 2, 1))),
        ("pad", lambda x: ops.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=1.5)), ("clip", lambda x: ops.clip(x, -0.5, 0.5)),
        ("top_k", lambda x: ops.top_k(x, 2)), ("cumsum", lambda x: ops.cumsum(x, axis=1)), ("logsumexp", lambda x: ops.logsumexp(x, axis=-1)),
        ("var", lambda x: ops.std(x, axis=1) + ops.var(x, axis=1)), ("repeat", lambda x: ops.repeat(x, 2, axis=1)),
        ("take", lambda x: ops.take(x, [0, 2], axis=-1)), ("sort", lambda x: ops.flip(ops.sort(x, axis=-1), axis=1)),
        ("roll", lambda x: ops.roll(ops.swapaxes(x, 1, 2), 1, axis=1)), ("minimum", lambda x, y: ops.minimum(ops.maximum(x, y), 0.25), 2),
        ("conv", lambda x: ops.conv(x, np.ones((2, 6, 3), "float32"), padding="same")), ("pool", lambda x: ops.max_pool(x, 2, 1)),
        ("rsqrt", lambda x: ops.rsqrt(ops.square(x) + 1.0) + ops.erf(x)), ("batch_norm", lambda x: ops.batch_normalization(
            x, np.zeros(6, "float32"), np.ones(6, "float32"), axis=-1)), ("resize", lambda x: ops.image.resize(x[..., None], (2, 3))),
        ("diff", lambda x: ops.diff(x, axis=-1)), ("unstack", lambda x: ops.unstack(x, axis=1)[1])]:
    CASES[f"ops_{_name}"] = lambda make=_make, inputs=_inputs: of_ops(make, *inputs)


@case
def subclassed():
    model = Residual(6)
    model.compile("rmsprop", "mse")
    x = numbers(12, 4)
    model(x)
    return model, x, numbers(12, 2)


@case
def objects_of_python():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, activation=doubled_relu, kernel_constraint=Bounded(0.3)), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(Slower(0.2), momentum=0.9), Weighted(2.0))
    return model, numbers(12, 4), numbers(12, 2)


@case
def derived_from_a_layer():
    model = keras.Sequential([keras.Input((4,)), Scaled(3, scale=3.0, activation="tanh"), layers.Dense(2)])
    model.compile("adam", "mse")
    return model, numbers(12, 4), numbers(12, 2)


@case
def called_with_structures():
    x, y = keras.Input((4,)), keras.Input((4,))
    mixed = Mixed()
    model = keras.Model([x, y], mixed(x, {"b": y, "a": [x]}, scale=3.0) + mixed(y, {"b": x, "a": [y]}))
    model.compile("adam", "mse")
    return model, [numbers(8, 4), numbers(8, 4, seed=1)], numbers(8, 4, seed=2)


@case
def kept_in_its_own_way():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), Kept(["a", "b"])])
    return model, numbers(8, 4), None


@case
def compiled_in_its_own_way():
    model = Compiled()
    model.compile(0.05, Weighted(4.0))
    x = numbers(8, 4)
    model(x)
    return model, x, numbers(8, 2)


@case
def bidirectional():
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(11, 5, mask_zero=True),
                              layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                              layers.Bidirectional(layers.GRU(2), merge_mode="sum"), layers.Dense(2)])
    model.compile("rmsprop", "mse")
    x = np.random.default_rng(0).integers(1, 11, (8, 6)).astype(np.int32)
    x[:4, 4:] = 0
    return model, x, numbers(8, 2)


@case
def cells():
    model = keras.Sequential([keras.Input((5, 3)), layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)], return_sequences=True),
                              layers.TimeDistributed(layers.Dense(3)), layers.RNN(Cell(2))])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), "mse")
    return model, numbers(8, 5, 3), numbers(8, 2)


@case
def convolutions():
    model = keras.Sequential([keras.Input((8, 8, 2)), layers.Conv2D(4, 3, padding="same", activation="relu"), layers.BatchNormalization(),
                              layers.MaxPooling2D(), layers.DepthwiseConv2D(3), layers.SeparableConv2D(3, 2), layers.GlobalAveragePooling2D(),
                              layers.Dense(2)])
    model.compile(keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.01, 20), weight_decay=0.01), "mse")
    return model, numbers(8, 8, 8, 2), numbers(8, 2)


@case
def attention():
    x = keras.Input((5, 8))
    y = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    y = layers.LayerNormalization()(layers.Add()([x, y]))
    y = layers.GroupNormalization(2)(y + layers.Dense(8, activation="gelu")(y))
    model = keras.Model(x, layers.EinsumDense("abc,cd->abd", output_shape=(None, 3), bias_axes="d")(y))
    model.compile(keras.optimizers.Nadam(0.01), "mse")
    return model, numbers(8, 5, 8), numbers(8, 5, 3)


@case
def models_in_a_model():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh")], name="inner")
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    both = layers.Concatenate()([inner(x), inner(y)])
    model = keras.Model({"x": x, "y": y}, {"sum": layers.Dense(2, name="sum")(both), "product": layers.Multiply(name="product")([inner(x), inner(y)])})
    model.compile(keras.optimizers.Adagrad(0.1), {"sum": "mse", "product": "mae"})
    return model, {"x": numbers(8, 4), "y": numbers(8, 4, seed=1)}, {"sum": numbers(8, 2), "product": numbers(8, 3)}


# Texts in models want TensorFlow under Keras: KERAS_BACKEND=tensorflow.
TITLES = ["A cat sat.", "the dog; the cat", "a bird", "no such words", "Cat\u00e9 cat", "sat sat sat", "dog", "a the a"]


def texts(values=TITLES, shape=(-1, 1)):
    """As both take them."""
    values = np.array(values, dtype=object).reshape(shape)
    if keras.__name__.startswith("lockstep"):
        return values
    import tensorflow
    return tensorflow.constant(values)


def vectorized(**settings):
    layer = layers.TextVectorization(max_tokens=12, **settings)
    layer.adapt(TITLES)
    return layer


def texts_in_a_sequential():
    model = keras.Sequential([keras.Input((1,), dtype="string"), vectorized(output_sequence_length=4), layers.Embedding(12, 4, mask_zero=True),
                              layers.GlobalAveragePooling1D(), layers.Dense(2)])
    model.compile("sgd", "mse")
    return model, texts(), numbers(8, 2)


def texts_and_numbers():
    title, size, kind = keras.Input((1,), dtype="string", name="title"), keras.Input((3,), name="size"), keras.Input((1,), dtype="int32", name="kind")
    tokens = layers.StringLookup(vocabulary=["a", "b"], output_mode="tf_idf", idf_weights=[0.5, 1.5])(title)
    bins = layers.CategoryEncoding(6, output_mode="one_hot")(layers.Hashing(6)(title))
    crossed = layers.HashedCrossing(5, output_mode="one_hot")([title, kind])
    model = keras.Model({"title": title, "size": size, "kind": kind}, layers.Dense(2)(layers.Concatenate()([tokens, bins, crossed, size])))
    model.compile("adam", "mse")
    return model, {"title": texts(list("abcabcab")), "size": numbers(8, 3), "kind": np.arange(8, dtype=np.int32)[:, None] % 3}, numbers(8, 2)


def texts_in_a_model_inside():
    title = keras.Input((1,), dtype="string")
    inner = keras.Model(title, [vectorized(output_sequence_length=5)(title), vectorized(output_mode="multi_hot", pad_to_max_tokens=True)(title)])
    numbered = keras.Sequential([keras.Input((5,), dtype="int64"), layers.Embedding(12, 3), layers.Flatten(), layers.Dense(2)])
    outer = keras.Input((1,), dtype="string")
    rows, counts = inner(outer)
    model = keras.Model(outer, [numbered(rows), layers.Dense(2)(counts)])
    model.compile("sgd", ["mse", "mse"])
    return model, texts(), [numbers(8, 2), numbers(8, 2, seed=1)]


@registered
class Reader(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.vectorize = layers.TextVectorization(max_tokens=12, output_sequence_length=4)
        self.embed, self.pool, self.out = layers.Embedding(12, 4), layers.GlobalMaxPooling1D(), layers.Dense(2)

    def call(self, x):
        return self.out(self.pool(self.embed(self.vectorize(x))))


def texts_in_a_call():
    model = Reader()
    model.vectorize.adapt(TITLES)
    model.compile("sgd", "mse")
    model(texts())
    return model, texts(), numbers(8, 2)


if keras.__name__.startswith("lockstep") or keras.backend.backend() == "tensorflow":
    for _case in (texts_in_a_sequential, texts_and_numbers, texts_in_a_model_inside, texts_in_a_call):
        case(_case)


def _optimized(optimizer):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(2)])
    model.compile(optimizer, "mse")
    return model, numbers(12, 4), numbers(12, 2)


for _name, _settings in {"Adadelta": {}, "Adamax": {}, "Ftrl": {}, "Lion": {}, "Adafactor": {}, "Lamb": {}, "RMSprop": {"centered": True, "momentum": 0.9},
                         "Adam": {"amsgrad": True, "clipnorm": 0.5}, "SGD": {"use_ema": True, "ema_momentum": 0.9, "momentum": 0.5}}.items():
    CASES[f"optimizer_{_name.lower()}"] = lambda name=_name, settings=_settings: _optimized(getattr(keras.optimizers, name)(0.01, **settings))


# --- writing and reading -------------------------------------------------------------------------------------------------

def flat(value):
    """Arrays of a structure, dictionaries by their sorted keys."""
    if isinstance(value, dict):
        return [part for key in sorted(value) for part in flat(value[key])]
    return [part for one in value for part in flat(one)] if isinstance(value, (list, tuple)) else [np.asarray(value)]


def predictions(model, x):
    return flat(model.predict(x, verbose=0))


def write(name, folder):
    keras.utils.set_random_seed(len(name))
    model, x, y = CASES[name]()
    for _ in range(3 if y is not None else 0):
        model.train_on_batch(x, y)
    model.save(folder / f"{name}.keras")
    model.save_weights(folder / f"{name}.weights.h5")
    arrays = {f"before_{i}": value for i, value in enumerate(predictions(model, x))}
    if y is not None:
        model.train_on_batch(x, y)
        arrays.update({f"after_{i}": value for i, value in enumerate(predictions(model, x))})
    np.savez(folder / f"{name}.npz", **arrays)


def difference(model, x, arrays, moment):
    made = predictions(model, x)
    return max(float(np.max(np.abs(one.astype(np.float64) - arrays[f"{moment}_{i}"]), initial=0)) /
               (float(np.max(np.abs(arrays[f"{moment}_{i}"].astype(np.float64)), initial=0)) or 1.0) for i, one in enumerate(made))


def read(name, folder):
    """The largest difference of predictions, of the whole model, of its weights in a new one, and after going on training."""
    arrays = np.load(folder / f"{name}.npz")
    anew, x, y = CASES[name]()
    anew.load_weights(folder / f"{name}.weights.h5")
    model = keras.models.load_model(folder / f"{name}.keras")
    worst = max(difference(model, x, arrays, "before"), 0.0 if name == "kept_in_its_own_way" else difference(anew, x, arrays, "before"))
    if y is not None:
        model.train_on_batch(x, y)
        worst = max(worst, difference(model, x, arrays, "after"))
    return worst


def main(what, folder):
    folder = pathlib.Path(folder)
    only = os.environ.get("LOCKSTEP_KERAS_CASE", "")
    failures, names = 0, [name for name in CASES if only in name]
    if what == "read":  # Keras writes models of texts on TensorFlow alone
        names = [name for name in names if not name.startswith("texts_") or (folder / f"{name}.npz").exists()]
    for name in names:
        keras.backend.clear_session()
        try:
            if what == "write":
                write(name, folder)
                continue
            worst = read(name, folder)
            fine = worst <= TOLERANCE
            print(f"{name}: {worst:.1e}" if fine else f"{name}: {worst:.1e}, more than {TOLERANCE}")
        except Exception as error:  # noqa: BLE001: the next file may be read all the same
            if only:
                raise
            fine = False
            print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
        failures += not fine
    print(f"{len(names) - failures} of {len(names)} models {'are written' if what == 'write' else 'are read and go on in the same way'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
