"""keras.layers.Pipeline."""

from . import saving
from ._layer import Layer
from ._layer_calls import call_parameters


class Pipeline(Layer):
    """Layers one after another that prepare data, as one layer: with random ones that draw wherever nobody says that it is not training."""

    _needs_no_input = True

    def __init__(self, layers, name=None):
        super().__init__(name=name)
        self.layers = list(layers)

    def call(self, inputs, training=True, mask=None):
        for layer in self.layers:
            takes = call_parameters(type(layer)) if layer._is_written else ("training",)
            options = {"training": training} if "training" in takes and training is not None else {}
            if mask is not None and "mask" in takes:
                options["mask"] = mask
            inputs = layer(inputs, **options)
            mask = None  # results carry theirs
        return inputs

    def get_config(self):
        return {"layers": [saving.serialize_keras_object(layer) for layer in self.layers], "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        if not isinstance(config.get("layers"), (list, tuple)):
            raise ValueError(f"Pipeline: `layers` is a list of serialized layers, received {config.get('layers')!r}")
        with saving.custom_object_scope(custom_objects):
            return cls(**{**config, "layers": [saving.deserialize_keras_object(layer) for layer in config["layers"]]})
