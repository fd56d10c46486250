"""keras.utils.FeatureSpace: columns of a table, by name, as what a model takes. It is made of Keras' layers, so that it is called with data, in
the functions of datasets, and with inputs of a model, of which it becomes a part."""

import json
import os

from .._lockstep import KerasTensor
from .._texts import TextDataset, Texts, is_text
from ..data import Dataset
from ..ops import expand_dims
from ..tensor import convert_to_tensor
from . import layers, ops, saving

_FILE = "config.json"


class Feature:
    """What becomes of a column: a layer takes what it holds, and output_mode says in which form the result is wanted: "float", "int" or
    "one_hot"."""

    def __init__(self, dtype, preprocessor, output_mode):
        if output_mode not in ("int", "one_hot", "float"):
            raise ValueError(f"Feature: output_mode is int, one_hot or float, received {output_mode!r}")
        self.dtype, self.output_mode = dtype, output_mode
        self.preprocessor = saving.deserialize_keras_object(preprocessor) if isinstance(preprocessor, dict) else preprocessor

    def get_config(self):
        return {"dtype": self.dtype, "preprocessor": _with_what_it_learned(self.preprocessor), "output_mode": self.output_mode}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Cross:
    """Several features together, as one: the hash of their values."""

    def __init__(self, feature_names, crossing_dim, output_mode="one_hot"):
        if output_mode not in ("int", "one_hot"):
            raise ValueError(f"Cross: output_mode is int or one_hot, received {output_mode!r}")
        self.feature_names, self.crossing_dim, self.output_mode = tuple(feature_names), crossing_dim, output_mode

    @property
    def name(self):
        return "_X_".join(self.feature_names)

    def get_config(self):
        return {"feature_names": self.feature_names, "crossing_dim": self.crossing_dim, "output_mode": self.output_mode}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _with_what_it_learned(layer):
    """The configuration of a layer. Vocabularies and boundaries are settings already, statistics become some."""
    config = saving.serialize_keras_object(layer)
    if isinstance(layer, layers.Normalization) and layer.built and config["config"]["mean"] is None:
        for name in ("mean", "variance"):
            config["config"][name] = getattr(layer, name).numpy().reshape(-1).tolist()
    return config


def _learns(layer):
    """Whether adapt() has something to find out for this layer."""
    config = layer.get_config()
    learned = [config[name] for name in ("vocabulary", "mean", "bin_boundaries") if name in config]
    return not any(learned) if learned else type(layer).adapt is not layers.Layer.adapt


def _categories(name, layer):
    """How many numbers there are that the layer of a feature can give."""
    if hasattr(layer, "vocabulary_size"):
        return layer.vocabulary_size()
    config = layer.get_config()
    if config.get("bin_boundaries"):
        return len(config["bin_boundaries"]) + 1
    count = config.get("num_bins") or config.get("num_tokens")
    if count is None:
        raise ValueError(f'FeatureSpace: feature "{name}" is to be one_hot, but how many numbers its preprocessor {layer.name!r} can give is not '
                         'known; take output_mode="int"')
    return count


class FeatureSpace:
    """Encodes tables: ``FeatureSpace({"age": "float_normalized", "thal": "string_categorical"}, crosses=[("age", "thal")])``. adapt() learns
    from a dataset; a call gives the features side by side (output_mode "concat") or by their names ("dict"). A model begins at
    get_encoded_features(), where data is encoded in its pipeline, or at get_inputs(), which takes columns as they are."""

    cross, feature = Cross, Feature

    def __init__(self, features, output_mode="concat", crosses=None, crossing_dim=32, hashing_dim=32, num_discretization_bins=32, name=None):
        if not features:
            raise ValueError("FeatureSpace: the `features` argument cannot be None or empty")
        if output_mode not in ("concat", "dict"):
            raise ValueError(f"FeatureSpace: output_mode is concat or dict, received {output_mode!r}")
        self.name, self.output_mode = name or "feature_space", output_mode
        self.crossing_dim, self.hashing_dim, self.num_discretization_bins = crossing_dim, hashing_dim, num_discretization_bins
        self.features = {name: self._feature(name, kind) for name, kind in features.items()}
        self.crosses = [self._cross(cross) for cross in crosses or ()]
        self.inputs = {name: layers.Input((1,), dtype=feature.dtype, name=name) for name, feature in self.features.items()}
        self.preprocessors = {name: feature.preprocessor for name, feature in self.features.items()}
        self.crossers = {cross.name: layers.HashedCrossing(cross.crossing_dim) for cross in self.crosses}
        self.one_hot_encoders = {}
        self._learning = [name for name, layer in self.preprocessors.items() if _learns(layer)]
        self._is_adapted, self._encoded = not self._learning, None

    # --- kinds of features ---

    @classmethod
    def float(cls, name=None):
        """A number."""
        return Feature("float32", layers.Identity(name=name), "float")

    @classmethod
    def float_rescaled(cls, scale=1.0, offset=0.0, name=None):
        """A number, scaled and moved."""
        return Feature("float32", layers.Rescaling(scale, offset, name=name), "float")

    @classmethod
    def float_normalized(cls, name=None):
        """A number, in standard deviations from the mean."""
        return Feature("float32", layers.Normalization(axis=-1, name=name), "float")

    @classmethod
    def float_discretized(cls, num_bins=None, bin_boundaries=None, output_mode="one_hot", name=None):
        """The bin that a number falls into."""
        return Feature("float32", layers.Discretization(bin_boundaries, num_bins, name=name), output_mode)

    @classmethod
    def integer_categorical(cls, max_tokens=None, num_oov_indices=1, output_mode="one_hot", name=None):
        """A whole number's place in the vocabulary."""
        return Feature("int32", layers.IntegerLookup(max_tokens=max_tokens, num_oov_indices=num_oov_indices, name=name), output_mode)

    @classmethod
    def string_categorical(cls, max_tokens=None, num_oov_indices=1, output_mode="one_hot", name=None):
        """A text's place in the vocabulary."""
        return Feature("string", layers.StringLookup(max_tokens=max_tokens, num_oov_indices=num_oov_indices, name=name), output_mode)

    @classmethod
    def integer_hashed(cls, num_bins, output_mode="one_hot", name=None):
        """A bin, by the hash of a whole number."""
        return Feature("int32", layers.Hashing(num_bins, name=name), output_mode)

    @classmethod
    def string_hashed(cls, num_bins, output_mode="one_hot", name=None):
        """A bin, by the hash of a text."""
        return Feature("string", layers.Hashing(num_bins, name=name), output_mode)

    def _feature(self, name, kind):
        if isinstance(kind, dict):
            kind = Feature.from_config(kind["config"])
        if isinstance(kind, Feature):
            return kind
        settings = {"float_discretized": {"num_bins": self.num_discretization_bins}, "integer_hashed": {"num_bins": self.hashing_dim},
                    "string_hashed": {"num_bins": self.hashing_dim}}
        kinds = ("float", "float_rescaled", "float_normalized", "float_discretized", "integer_categorical", "string_categorical",
                 "integer_hashed", "string_hashed")
        if kind not in kinds:
            raise ValueError(f'FeatureSpace: feature "{name}" is of no kind {kind!r}; there are {", ".join(kinds)}')
        return getattr(self, kind)(**settings.get(kind, {}))

    def _cross(self, cross):
        cross = Cross.from_config(cross["config"]) if isinstance(cross, dict) else cross
        cross = cross if isinstance(cross, Cross) else Cross(cross, self.crossing_dim)
        unknown = [name for name in cross.feature_names if name not in self.features]
        if unknown:
            raise ValueError(f"FeatureSpace: the crosses name {unknown}, which are no features; there are {list(self.features)}")
        return cross

    # --- learning and encoding ---

    def adapt(self, dataset):
        """Vocabularies, statistics and boundaries, from columns by name, or from a dataset of such dictionaries, of rows or of batches."""
        dataset = Dataset.from_tensor_slices(dataset) if isinstance(dataset, dict) else dataset
        if not isinstance(dataset, (Dataset, TextDataset)):
            raise ValueError(f"adapt: takes columns by name, or a dataset of them, received {type(dataset).__name__}")
        for name in self._learning:
            self.preprocessors[name].adapt(self._columns_of(dataset, name))
        self._is_adapted, self._encoded, self.one_hot_encoders = True, None, {}
        self.get_encoded_features()  # which says now where features do not stand beside each other

    def _columns_of(self, dataset, name):
        """A dataset of batches of one column, with two dimensions."""
        column = dataset.map(lambda *row: self._column(row[0] if len(row) == 1 else row, name))
        rank = next((len(value.shape) for value in column.take(1)), None)
        if rank is None:
            raise ValueError("adapt: the dataset is empty")
        column = column.batch(32) if rank == 0 else column
        return column.map(lambda value: expand_dims(value, -1)) if rank < 2 else column

    def _column(self, columns, name):
        if not isinstance(columns, dict):
            raise ValueError(f"a FeatureSpace takes dictionaries of columns, received {type(columns).__name__}; of a dataset with labels, "
                             "dataset.map(lambda x, _: x) has the columns alone")
        if name not in columns:
            raise ValueError(f'FeatureSpace: there is no column "{name}"; there are {", ".join(map(str, columns))}')
        return columns[name]

    def get_inputs(self):
        """Inputs of a model, by the names of the features."""
        self._check_adapted()
        return self.inputs

    def get_encoded_features(self):
        """What becomes of these inputs: where a model can begin whose data was encoded before."""
        self._check_adapted()
        if self._encoded is None:
            self._encoded = self._encode(self.inputs)
        return self._encoded

    def __call__(self, data):
        """Columns, or one row: numbers and texts by the names of the features."""
        self._check_adapted()
        columns = {name: self._column(data, name) for name in self.features}
        if any(isinstance(value, KerasTensor) for value in columns.values()):
            return self._encode(columns)
        columns = {name: Texts(value) if is_text(value) else convert_to_tensor(value) for name, value in columns.items()}
        is_row = all(len(value.shape) == 0 for value in columns.values())
        columns = {name: _as_column(value) for name, value in columns.items()}
        encoded = self._encode(columns)
        if not is_row:
            return encoded
        return {name: value[0] for name, value in encoded.items()} if isinstance(encoded, dict) else encoded[0]

    def _check_adapted(self):
        if not self._is_adapted:
            raise ValueError("FeatureSpace: call adapt(dataset) first: " + ", ".join(self._learning) + " learn from data")

    def _encode(self, columns):
        """Features sorted by name, then crosses sorted by name."""
        made = {name: self.preprocessors[name](columns[name]) for name in self.features}
        crossed = {cross.name: self.crossers[cross.name]([made[name] for name in cross.feature_names]) for cross in self.crosses}
        specs = {**self.features, **{cross.name: cross for cross in self.crosses}}
        encoded = {name: self._in_form(name, value, specs[name]) for part in (made, crossed) for name, value in sorted(part.items())}
        if self.output_mode == "dict":
            return encoded
        parts = list(encoded.values())
        return layers.concatenate(parts) if len(parts) > 1 else parts[0]

    def _in_form(self, name, value, spec):
        mode, dtype = spec.output_mode, value.dtype.name
        if mode == "float":
            return value if dtype == "float32" else ops.cast(value, "float32")
        if mode == "int":
            if self.output_mode == "concat":
                raise ValueError(f'FeatureSpace: feature "{name}" stays a whole number, which does not stand beside others; take its '
                                 'output_mode="one_hot", or output_mode="dict" of the space')
            return value
        if not dtype.startswith("int"):
            raise ValueError(f'FeatureSpace: feature "{name}" is to be one_hot, so that its preprocessor must give integers; it gives {dtype}')
        if name not in self.one_hot_encoders:
            layer = self.preprocessors.get(name) or self.crossers[name]
            self.one_hot_encoders[name] = layers.CategoryEncoding(num_tokens=_categories(name, layer), output_mode="multi_hot")
        return self.one_hot_encoders[name](value)

    # --- files ---

    def get_config(self):
        """Keras' configuration, with what was learned."""
        def named(part):
            return {"module": "keras.utils", "class_name": type(part).__name__, "config": part.get_config(), "registered_name": None}
        return {"features": {name: named(feature) for name, feature in self.features.items()}, "output_mode": self.output_mode,
                "crosses": [named(cross) for cross in self.crosses], "crossing_dim": self.crossing_dim, "hashing_dim": self.hashing_dim,
                "num_discretization_bins": self.num_discretization_bins, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def save(self, filepath):
        """One file, which keras.saving.load_model reads."""
        path = os.fspath(filepath)
        if not path.endswith(".keras"):
            raise ValueError(f"FeatureSpace.save: {path!r} must end in .keras")
        self._check_adapted()
        import zipfile  # here and below: importing the package does without
        text = json.dumps({"module": "keras.utils", "class_name": "FeatureSpace", "config": self.get_config(), "registered_name": None})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(_FILE, text)


def _as_column(value):
    """With two dimensions: rows of one value."""
    rank = len(value.shape)
    return expand_dims(expand_dims(value, 0), 0) if rank == 0 else expand_dims(value, -1) if rank == 1 else value


def in_file(path):
    """The FeatureSpace that a file holds; None where it holds something else."""
    import zipfile
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if _FILE not in archive.namelist():
            return None
        config = json.loads(archive.read(_FILE))
    if not isinstance(config, dict) or config.get("class_name") != "FeatureSpace":
        return None
    space = FeatureSpace.from_config(config["config"])
    if not space._is_adapted:
        raise ValueError(f"load_model: {path!r} does not hold what its FeatureSpace learned in the form that FeatureSpace.save() writes here; "
                         "call adapt() of a new one and save that")
    return space
